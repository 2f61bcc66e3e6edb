//! Tables of requests and changes with their expected results. Times are in microseconds.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use tollgate::store::{BanCheck, Change, Check, Mode, Settlement, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Outcome, Quota};

use super::subject::{Checked, Subject, again, counter, describe_checks, own_clock};

pub(super) const S: u64 = 1_000_000;
pub(super) const MS: u64 = 1_000;
pub(super) const DAY: u64 = 86_400 * S;

/// Time since the Unix epoch at which the clocks of cases start.
pub(super) const EPOCH_US: u64 = ManualClock::EPOCH.as_secs() * S;

pub(super) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    quota: Quota,
    rows: Vec<Row>,
}

pub(super) fn table(name: &'static str, quota: Quota, rows: impl Into<Vec<Row>>) -> Table {
    Table { name, quota, rows: rows.into() }
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    now: u64,
    asked: Vec<Asked>,
    change: Option<Changed>,
    place: &'static Location<'static>,
}

#[derive(Clone, Debug)]
struct Asked {
    policy: &'static str,
    key: &'static str,
    quota: Option<Quota>,
    cost: u64,
    floor: u64,
    mode: Mode,
    ban: Option<BanCheck>,
    answer: Expected,
}

/// Changes to the counter, or to the units that a `request` of the table took.
#[derive(Clone, Debug)]
struct Changed {
    request: Option<usize>,
    changes: Vec<(usize, Change, u64)>,
    bans: Option<(Duration, bool)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    allowed: bool,
    remaining: u64,
    retry_after: Option<Duration>,
    is_guess: bool,
    reset_after: Duration,
    delay: Duration,
    banned: bool,
}

impl Expected {
    fn from_outcome(outcome: &Outcome) -> Self {
        Self {
            allowed: outcome.is_allowed(),
            remaining: outcome.remaining(),
            retry_after: outcome.retry_after(),
            is_guess: outcome.retry_is_guess(),
            reset_after: outcome.reset_after(),
            delay: outcome.delay(),
            banned: outcome.is_banned(),
        }
    }

    fn is_like(&self, other: &Self, tolerance: Duration) -> bool {
        let whole = |Self { allowed, remaining, retry_after, is_guess, banned, .. }: &Self| {
            (*allowed, *remaining, retry_after.is_some(), *is_guess, *banned)
        };
        let times = |answer: &Self| [answer.retry_after.unwrap_or_default(), answer.reset_after, answer.delay];
        let mut pairs = times(self).into_iter().zip(times(other));
        whole(self) == whole(other) && pairs.all(|(one, two)| one.abs_diff(two) <= tolerance)
    }
}

pub(super) struct Whole {
    allowed: bool,
    taken: Vec<u64>,
    answers: Vec<Expected>,
}

impl Whole {
    pub(super) fn from_decision(decided: &StoreDecision) -> Self {
        let taken = decided.receipt.items().iter().map(|taken| taken.units).collect();
        let answers = decided.decision.outcomes().iter().map(Expected::from_outcome).collect();
        Self { allowed: decided.decision.is_allowed(), taken, answers }
    }

    pub(super) fn is_like(&self, other: &Self, tolerance: Duration) -> bool {
        let mut pairs = self.answers.iter().zip(&other.answers);
        (self.allowed, &self.taken, self.answers.len()) == (other.allowed, &other.taken, other.answers.len())
            && pairs.all(|(one, two)| one.is_like(two, tolerance))
    }
}

impl fmt::Debug for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(allowed: {}, taken: {:?}) {:?}", self.allowed, self.taken, self.answers)
    }
}

#[track_caller]
pub(super) fn admits(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, None, reset_after).and(|asked| asked.answer.allowed = true)
}

#[track_caller]
pub(super) fn denies(now: u64, cost: u64, remaining: u64, retry_after: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, Some(us(retry_after)), reset_after)
}

#[track_caller]
pub(super) fn never(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, None, reset_after)
}

#[track_caller]
pub(super) fn banned(now: u64, cost: u64, left: u64) -> Row {
    row(now, cost, 0, Some(us(left)), left).banned()
}

#[track_caller]
fn row(now: u64, cost: u64, remaining: u64, retry_after: Option<Duration>, reset_after: u64) -> Row {
    let (reset_after, delay, place) = (us(reset_after), Duration::ZERO, Location::caller());
    let answer =
        Expected { allowed: false, remaining, retry_after, is_guess: false, reset_after, delay, banned: false };
    let (policy, key, mode) = ("policy", "ada", Mode::Enforce);
    let asked = Asked { policy, key, quota: None, cost, floor: 0, mode, ban: None, answer };
    Row { now, asked: vec![asked], change: None, place }
}

#[track_caller]
pub(super) fn adjusts(now: u64, change: Change, units: u64) -> Row {
    let change = Changed { request: None, changes: vec![(0, change, units)], bans: None };
    Row { change: Some(change), ..row(now, 0, 0, None, 0) }
}

/// It may be repeated.
#[track_caller]
pub(super) fn settles(now: u64, request: usize, change: Change, units: u64) -> Row {
    settles_each(now, request, &[(0, change, units)])
}

#[track_caller]
pub(super) fn settles_each(now: u64, request: usize, changes: &[(usize, Change, u64)]) -> Row {
    let change = Changed { request: Some(request), changes: changes.to_vec(), bans: None };
    Row { change: Some(change), ..row(now, 0, 0, None, 0) }
}

#[track_caller]
pub(super) fn nothing() -> Row {
    Row { asked: Vec::new(), ..row(0, 0, 0, None, 0) }
}

pub(super) fn at_once<const N: usize>(rows: [Row; N]) -> Row {
    let (now, place) = (rows[0].now, rows[0].place);
    Row { now, asked: rows.into_iter().flat_map(|row| row.asked).collect(), change: None, place }
}

impl Row {
    fn and(mut self, change: impl Fn(&mut Asked)) -> Self {
        self.asked.iter_mut().for_each(change);
        self
    }

    pub(super) fn by(self, quota: Quota) -> Self {
        self.and(|asked| asked.quota = Some(quota))
    }

    pub(super) fn policy(self, policy: &'static str) -> Self {
        self.and(|asked| asked.policy = policy)
    }

    pub(super) fn key(self, key: &'static str) -> Self {
        self.and(|asked| asked.key = key)
    }

    pub(super) fn floor(self, floor: u64) -> Self {
        self.and(|asked| asked.floor = floor)
    }

    pub(super) fn ban(self, ban: Ban) -> Self {
        self.and(|asked| asked.ban = Some(BanCheck::new(ban)))
    }

    pub(super) fn counts_not(self) -> Self {
        self.and(|asked| asked.ban = asked.ban.take().map(BanCheck::without_strikes))
    }

    pub(super) fn banned(self) -> Self {
        self.and(|asked| asked.answer.banned = true)
    }

    pub(super) fn guessed(self) -> Self {
        self.and(|asked| asked.answer.is_guess = true)
    }

    pub(super) fn shadow(self) -> Self {
        self.and(|asked| asked.mode = Mode::Shadow)
    }

    pub(super) fn delay(self, delay: u64) -> Self {
        self.and(|asked| asked.answer.delay = us(delay))
    }

    pub(super) fn bans(mut self, length: Duration, begins: bool) -> Self {
        self.change = self.change.map(|change| Changed { bans: Some((length, begins)), ..change });
        self
    }

    fn checks(&self, quota: Quota) -> Vec<Check> {
        let of = |asked: &Asked| {
            let counter = counter(asked.policy, asked.key, asked.quota.unwrap_or(quota));
            let check = Check::new(counter, asked.cost).floor(asked.floor).mode(asked.mode);
            asked.ban.clone().into_iter().fold(check, Check::ban)
        };
        self.asked.iter().map(of).collect()
    }

    fn expected(&self) -> Whole {
        let answers: Vec<_> = self.asked.iter().map(|asked| asked.answer.clone()).collect();
        let allowed = self.asked.iter().all(|asked| asked.answer.allowed || asked.mode == Mode::Shadow);
        let taken = |asked: &Asked| if asked.answer.allowed { asked.cost } else { 0 };
        let taken = if allowed { self.asked.iter().map(taken).collect() } else { Vec::new() };
        Whole { allowed, taken, answers }
    }
}

impl Subject {
    pub(super) async fn table(&self, Table { quota, rows, .. }: &Table) -> Checked {
        if !self.is_slow(*quota) {
            return Err(own_clock());
        }
        let mut requests = Vec::new();
        for row in rows {
            self.at(row.now)?;
            let checks = row.checks(*quota);
            let file = row.place.file().rsplit(['/', '\\']).next().unwrap_or_default();
            let place = format!("{file}:{}: at {} us", row.place.line(), row.now);
            if let Some(changed) = &row.change {
                self.change(&checks[0], changed, &mut requests, &place).await?;
                continue;
            }
            let decided = self.decide(&checks).await?;
            let (found, expected) = (Whole::from_decision(&decided), row.expected());
            self.holds(expected.is_like(&found, self.tolerance()), || {
                format!("{place} {}: expected {expected:?}, found {found:?}", describe_checks(&checks))
            });
            requests.push(decided);
        }
        Ok(())
    }

    async fn change(&self, on: &Check, changed: &Changed, requests: &mut [StoreDecision], place: &str) -> Checked {
        let Changed { request, changes, bans } = changed;
        let applied = match request {
            None => vec![self.adjust(&on.counter, changes[0].1).await?],
            Some(request) => {
                let settlements: Vec<_> =
                    changes.iter().map(|(check, change, _)| Settlement::new(*check, *change)).collect();
                self.settle(again(&requests[*request], None), &settlements).await?
            }
        };
        if let (Some(request), [(_, change @ Change::Renew(_), _)], [applied]) = (request, &changes[..], &applied[..]) {
            requests[*request] = again(&requests[*request], Some((*change, applied)));
        }
        let found: Vec<_> =
            applied.iter().map(|one| (one.units, one.banned_for.map(|length| (length, one.ban_began())))).collect();
        let expected = changes.iter().map(|(.., units)| (*units, *bans)).collect();
        self.equal(found, expected, || format!("{place} {changes:?} to {}", on.counter.quota()));
        Ok(())
    }
}
