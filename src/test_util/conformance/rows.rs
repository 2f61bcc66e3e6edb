//! Tables of what one counter answers. All times are in microseconds.

use std::panic::Location;
use std::time::Duration;

use super::super::ManualClock;
use super::subject::{Checked, Stop, Subject, again};
use crate::core::{Ban, Outcome, Quota};
use crate::store::{BanCheck, Change, Decided, Mode, Settlement};

pub(super) const S: u64 = 1_000_000;
pub(super) const MS: u64 = 1_000;
pub(super) const DAY: u64 = 86_400 * S;

/// The time since the Unix epoch at which the clocks of cases start.
pub(super) const EPOCH_US: u64 = ManualClock::EPOCH.as_secs() * S;

pub(super) const fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// One request for one counter and its answer, or one change and what it comes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    now: u64,
    /// If it is not that of the table.
    quota: Option<Quota>,
    cost: u64,
    floor: u64,
    mode: Mode,
    ban: Option<Ban>,
    answer: Answer,
    changed: Option<Changed>,
    place: &'static Location<'static>,
}

/// A change to the counter, or to what the request at an index of the table took.
#[derive(Clone, Copy, Debug)]
struct Changed {
    request: Option<usize>,
    change: Change,
    units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    allowed: bool,
    remaining: u64,
    retry_after: Option<Duration>,
    reset_after: Duration,
    delay: Duration,
    banned: bool,
}

impl Answer {
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self {
            allowed: outcome.is_allowed(),
            remaining: outcome.remaining(),
            retry_after: outcome.retry_after(),
            reset_after: outcome.reset_after(),
            delay: outcome.delay(),
            banned: outcome.is_banned(),
        }
    }

    /// Whether another answer is the same but for a tolerance of times.
    fn is_like(&self, other: &Self, tolerance: Duration) -> bool {
        let whole = |answer: &Self| (answer.allowed, answer.remaining, answer.retry_after.is_some(), answer.banned);
        let times = |answer: &Self| [answer.retry_after.unwrap_or_default(), answer.reset_after, answer.delay];
        let are_near = times(self).into_iter().zip(times(other)).all(|(one, two)| one.abs_diff(two) <= tolerance);
        whole(self) == whole(other) && are_near
    }
}

/// Whether outcomes are the same but for a tolerance of times.
pub(super) fn are_alike(one: &Outcome, other: &Outcome, tolerance: Duration) -> bool {
    let same = |outcome: &Outcome| (*outcome.quota(), outcome.window(), outcome.retry_is_guess());
    same(one) == same(other) && Answer::of(one).is_like(&Answer::of(other), tolerance)
}

#[track_caller]
pub(super) fn admits(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    let mut row = row(now, cost, remaining, None, reset_after);
    row.answer.allowed = true;
    row
}

#[track_caller]
pub(super) fn denies(now: u64, cost: u64, remaining: u64, retry_after: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, Some(us(retry_after)), reset_after)
}

/// Denied, and no wait helps.
#[track_caller]
pub(super) fn never(now: u64, cost: u64, remaining: u64, reset_after: u64) -> Row {
    row(now, cost, remaining, None, reset_after)
}

/// Refused by a ban, which is what the time to retry and the reset are of.
#[track_caller]
pub(super) fn banned(now: u64, cost: u64, left: u64) -> Row {
    row(now, cost, 0, Some(us(left)), left).banned()
}

#[track_caller]
fn row(now: u64, cost: u64, remaining: u64, retry_after: Option<Duration>, reset_after: u64) -> Row {
    let (reset_after, delay) = (us(reset_after), Duration::ZERO);
    let answer = Answer { allowed: false, remaining, retry_after, reset_after, delay, banned: false };
    let (quota, changed, place) = (None, None, Location::caller());
    Row { now, quota, cost, floor: 0, mode: Mode::Enforce, ban: None, answer, changed, place }
}

/// A change to the counter, which comes to so many units.
#[track_caller]
pub(super) fn adjusts(now: u64, change: Change, units: u64) -> Row {
    Row { changed: Some(Changed { request: None, change, units }), ..row(now, 0, 0, None, 0) }
}

/// A change to what one of the table's requests took, which are counted from 0. It can be made again.
#[track_caller]
pub(super) fn settles(now: u64, request: usize, change: Change, units: u64) -> Row {
    Row { changed: Some(Changed { request: Some(request), change, units }), ..row(now, 0, 0, None, 0) }
}

impl Row {
    /// By another quota than that of the table.
    pub(super) fn by(self, quota: Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    pub(super) fn floor(self, floor: u64) -> Self {
        Self { floor, ..self }
    }

    pub(super) fn ban(self, ban: Ban) -> Self {
        Self { ban: Some(ban), ..self }
    }

    /// Because the key is banned.
    pub(super) fn banned(mut self) -> Self {
        self.answer.banned = true;
        self
    }

    pub(super) fn shadow(self) -> Self {
        Self { mode: Mode::Shadow, ..self }
    }

    /// Admitted, after waiting this long.
    pub(super) fn delay(mut self, delay: u64) -> Self {
        self.answer.delay = us(delay);
        self
    }

    /// The file and the line that the row is in.
    fn place(&self) -> String {
        let file = self.place.file().rsplit(['/', '\\']).next().unwrap_or_default();
        format!("{file}:{}", self.place.line())
    }
}

impl Subject {
    /// Compares a table of a key that was not used before.
    pub(super) async fn table(&self, quota: Quota, rows: &[Row]) -> Checked {
        self.next_key();
        self.run(quota, rows).await
    }

    /// Compares a table of the present key.
    pub(super) async fn run(&self, quota: Quota, rows: &[Row]) -> Checked {
        if !self.is_slow(quota) {
            return Err(Stop::OwnClock);
        }
        let mut requests = Vec::new();
        for row in rows {
            self.at(row.now)?;
            let quota = row.quota.unwrap_or(quota);
            match row.changed {
                None => requests.push(self.row(quota, row).await?),
                Some(changed) => self.change(quota, row, changed, &mut requests).await?,
            }
        }
        Ok(())
    }

    async fn row(&self, quota: Quota, row: &Row) -> Result<Decided, Stop> {
        let mut check = self.check(quota, row.cost).floor(row.floor).mode(row.mode);
        check.ban = row.ban.map(|ban| Box::new(BanCheck::new(ban)));
        let decided = self.decide(&[check]).await?;
        let decision = &decided.decision;
        let place = || format!("{}: {} of {quota} at {} us", row.place(), row.cost, row.now);
        let found = decision.outcomes().first().map(Answer::of);
        let is_like = found.is_some_and(|found| row.answer.is_like(&found, self.tolerance()));
        self.holds(is_like, || format!("{}: expected {:?}, found {found:?}", place(), row.answer));
        let refuses = row.mode == Mode::Enforce && !row.answer.allowed;
        let whole = (decision.is_allowed(), decision.retry_after().is_some());
        let expected = (!refuses, refuses && row.answer.retry_after.is_some());
        self.equal(whole, expected, || format!("{}: whether it is admitted, and may be retried", place()));
        Ok(decided)
    }

    async fn change(&self, quota: Quota, row: &Row, changed: Changed, requests: &mut [Decided]) -> Checked {
        let Changed { request, change, units } = changed;
        let applied = match request {
            None => self.adjust(&self.counter(quota), change).await?,
            Some(request) => {
                let applied = self.settle_all(again(&requests[request], None), &[Settlement::new(0, change)]).await?;
                let Some(applied) = applied.into_iter().next() else {
                    return Err(Stop::Failed(format!("{}: a settlement without a result", row.place())));
                };
                if let Change::Renew(_) = change {
                    requests[request] = again(&requests[request], Some((change, &applied)));
                }
                applied
            }
        };
        self.equal(applied.units, units, || format!("{}: {change:?} to {quota} at {} us", row.place(), row.now));
        Ok(())
    }
}
