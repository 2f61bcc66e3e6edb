//! Random histories of requests and changes, each call compared with the memory store.
//!
//! Draws are of edges: costs around the capacity, the ends of windows, the tick at which a request is allowed. A server
//! drops states by its own time while the clock is the suite's. So unless a store's states expire by the clock, a
//! history ends when a written state has a TTL below [`LIFE`], and when it took as long.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tollgate::policy::Algorithm;
use tollgate::store::{BanCheck, Change, ChangeResult, Check, Counter, Mode, Settlement, Store, StoreDecision};
use tollgate::{Ban, Error, MemoryStore, Outcome, Quota};

use self::With::{Back, Bans, Changes, Limits, Reserves};
use super::rows::{DAY, EPOCH_US, MS, S, Whole, micros, us};
use super::subject::{Checked, Stop, Subject, again, counter, decide, describe_checks};

/// A refund may leave so little that a server drops the state at once, and with it the last time seen, so where the
/// clock steps back, units are only charged.
pub(super) const CASES: &[(&str, usize, &[With])] = &[
    ("of_one_check", 1, &[]),
    ("of_reserves_and_shadow_mode", 1, &[Reserves]),
    ("of_refunds_charges_renewals_and_resets", 1, &[Changes]),
    ("of_limits_that_change", 1, &[Limits]),
    ("of_a_clock_that_steps_back", 1, &[Back, Changes]),
    ("of_several_checks", 4, &[Reserves, Changes, Limits]),
    ("of_bans", 3, &[Bans, Reserves, Changes]),
    ("of_bans_and_a_clock_that_steps_back", 3, &[Bans, Reserves, Back]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum With {
    Reserves,
    Changes,
    Limits,
    Back,
    Bans,
}

const LIFE: Duration = Duration::from_secs(5);
const STEPS: usize = 20;

const EACH: usize = 2;

/// Start of histories, so that the clock can step back.
const START: u64 = 5_000 * DAY;

/// With bans the clock stands at a multiple of this, or a little later, so that strikes live for long enough.
const CELL: u64 = 30 * S;

/// Quotas of one counter: its limit, half of it, and twice as much.
type Family = [Quota; 3];

fn families() -> Vec<Family> {
    // Limit, window, burst, places in the queue, and requests that start immediately.
    const SHAPES: [(u64, u64, u64, u64, u64); 8] = [
        (6, 60 * S, 6, 5, 1),
        (7, 61 * S, 14, 3, 2),
        (12, 120 * S, 2, 0, 1),
        (5, 30 * DAY, 5, 9, 4),
        (2, 1, 6, 6, 1),
        // Levels of the buckets are below 2^52, and above.
        (37_529_996, 60 * S, 37_529_996, 9, 3),
        (37_529_998, 60 * S, 37_529_998, 37_529_998, 1),
        (1_000_000_000, DAY, 1_000_000_000, 1_000_000_000, 1_000),
    ];
    let mut families = Vec::new();
    for algorithm in Algorithm::ALL {
        for (limit, window, burst, queue, at_once) in SHAPES {
            let of = |halves: u64| {
                let quota = Quota::try_new(*algorithm, limit * halves / 2, us(window)).ok()?;
                // Each setter fails but for the algorithm that has it.
                let quota = quota.try_burst(burst * halves / 2).unwrap_or(quota);
                let quota = quota.try_queue(queue * halves / 2).unwrap_or(quota);
                Some(quota.try_nodelay(at_once).unwrap_or(quota))
            };
            families.extend(of(2).and_then(|quota| Some([quota, of(1)?, of(4).unwrap_or(quota)])));
        }
    }
    #[cfg(feature = "calendar")]
    families.extend(
        super::calendar::in_utc().map(|calendar| [6, 3, 12].map(|limit| Quota::calendar_window(limit, calendar))),
    );
    families
}

pub(super) async fn run(on: &Subject, seed: u64, most_checks: usize, with: &'static [With]) -> Checked {
    let (mut rng, mut left_out) = (Rng::with_seed(seed), Ok(()));
    let families: Vec<_> = families().into_iter().filter(|[_, _, fastest]| on.is_slow(*fastest)).collect();
    for index in 0..EACH * families.len() {
        let mut any = || families[rng.usize(..families.len())];
        let quotas = if most_checks == 1 { vec![families[index % families.len()]] } else { vec![any(), any(), any()] };
        match compare(on, index, most_checks, with, &quotas, &rng.fork()).await {
            Err(stop @ Stop::LeftOut(_)) => left_out = Err(stop),
            other => other?,
        }
    }
    left_out
}

/// Compares one history, several times if the store has its own clock, each time with a new key: it differs if all of
/// them do.
///
/// By its own clock a store decides a moment before the store it is compared with, and a unit may return in between.
/// Real mistakes of a store differ in each run.
async fn compare(
    on: &Subject,
    index: usize,
    most_checks: usize,
    with: &'static [With],
    quotas: &[Family],
    rng: &Rng,
) -> Checked {
    for again in (0..if on.clock.is_some() { 1 } else { 5 }).rev() {
        let (mut rng, model, key) = (rng.clone(), on.model(), format!("{index} {again}"));
        let (ban, now, reset, receipts, calls) = (any_ban(&mut rng), START, 0, Vec::new(), Vec::new());
        let since = Instant::now();
        let mut history =
            History { on, key, most_checks, with, quotas, ban, rng, model, now, since, receipts, calls, reset };
        let ended = history.run().await;
        for [quota, ..] in quotas {
            on.adjust(&history.counter(*quota), Change::Reset).await?;
        }
        match ended {
            Err(Stop::Differs(_)) if again > 0 => {}
            Err(Stop::Differs(how)) => on.holds(false, || how),
            Err(Stop::Forgets) => break,
            other => return other,
        }
    }
    Ok(())
}

fn any_ban(rng: &mut Rng) -> Ban {
    let within = us(rng.u64(1..20) * CELL + 27 * S);
    let ban = Ban::new([1, 2, 2, 3, 5][rng.usize(..5)], within, us(rng.u64(1..10) * CELL));
    let ban = if rng.u8(..4) == 0 { ban.extending() } else { ban };
    if rng.bool() { ban } else { ban.backoff([1.0, 1.5, 2.0, 3.333][rng.usize(..4)], us(rng.u64(10..40) * CELL)) }
}

struct History<'a> {
    on: &'a Subject,
    key: String,
    most_checks: usize,
    with: &'static [With],
    quotas: &'a [Family],
    ban: Ban,
    rng: Rng,
    model: MemoryStore,
    now: u64,
    since: Instant,
    receipts: Vec<(Vec<Check>, StoreDecision, StoreDecision)>,
    calls: Vec<Call>,
    reset: u64,
}

/// Time, checks of a request, and a change to the units it took.
type Call = (u64, Vec<Check>, Option<Change>);

impl History<'_> {
    async fn run(&mut self) -> Checked {
        for step in 0..STEPS {
            if self.rng.u8(..30) == 0 {
                self.ban = any_ban(&mut self.rng);
            }
            let checks: Vec<_> = (0..self.rng.usize(1..=self.most_checks)).map(|_| self.check(step)).collect();
            let (found, expected) = self.decide(&checks).await?;
            self.wait_as_told(&checks, &expected).await?;
            self.receipts.push((checks, found, expected));
            if self.has(Changes) {
                self.change().await?;
            }
            if self.on.clock.is_some() {
                self.now = self.later();
            }
        }
        Ok(())
    }

    fn has(&self, with: With) -> bool {
        self.with.contains(&with)
    }

    fn counter(&self, quota: Quota) -> Counter {
        counter("policy", &self.key, quota)
    }

    fn check(&mut self, step: usize) -> Check {
        let (has_reserves, has_limits, has_bans) = (self.has(Reserves), self.has(Limits), self.has(Bans));
        let rng = &mut self.rng;
        let quota = self.quotas[rng.usize(..self.quotas.len())][if has_limits { rng.usize(..3) } else { 0 }];
        let most = quota.capacity();
        let cost = [0, 1, 1, 1, 1, 2, 3, most / 2, most - 1, most, most + 1, u64::MAX][rng.usize(..12)];
        // A state lives for as long as most of the units need.
        let cost = if step == 0 { most.div_ceil(3) * 2 } else { cost };
        let floor = if has_reserves && rng.u8(..4) == 0 { [1, 2, most / 2, u64::MAX][rng.usize(..4)] } else { 0 };
        let mode = if has_reserves && rng.u8(..6) == 0 { Mode::Shadow } else { Mode::Enforce };
        let check = Check::new(counter("policy", &self.key, quota), cost).floor(floor).mode(mode);
        if !has_bans || rng.u8(..4) == 0 {
            return check;
        }
        let ban = BanCheck::new(self.ban);
        check.ban(if rng.u8(..6) > 0 { ban } else { ban.without_strikes() })
    }

    fn later(&mut self) -> u64 {
        let (back, bans, quota) = (self.has(Back), self.has(Bans), self.quotas[0][0]);
        let (now, window, tick, rng) = (self.now, micros(quota.window()), tick(&quota), &mut self.rng);
        if bans {
            return match rng.u8(..20) {
                0 if back => (now / CELL - rng.u64(1..100)) * CELL,
                1 => (now / CELL + rng.u64(1..200)) * CELL,
                2..8 => (now / CELL + rng.u64(1..6)) * CELL,
                _ => now,
            };
        }
        let end = now + window - (EPOCH_US + now) % window;
        match rng.u8(..20) {
            0..2 => now + rng.u64(..=window / 3),
            2 => now + rng.u64(..=3 * window),
            3 => end - tick,
            4 => end,
            5 => self.reset.max(now + tick) - tick,
            6 => self.reset,
            7 => now + tick,
            8 if back => now - window,
            9 if back => now - window - tick,
            10..12 if back => now - rng.u64(..=window),
            _ => now,
        }
    }

    async fn decide(&mut self, checks: &[Check]) -> Result<(StoreDecision, StoreDecision), Stop> {
        self.on.at(self.now)?;
        let found = self.on.decide(checks).await?;
        let expected = decide(&self.model, checks).await?;
        let (one, two) = (found.decision.outcomes(), expected.decision.outcomes());
        let same =
            |outcomes: &[Outcome]| -> Vec<_> { outcomes.iter().map(|one| (*one.quota(), one.window())).collect() };
        let (whole, wanted) = (Whole::from_decision(&found), Whole::from_decision(&expected));
        let is_like = same(one) == same(two) && whole.is_like(&wanted, self.on.tolerance());
        self.compare(is_like, checks.to_vec(), None, || format!("expected {wanted:?}, found {whole:?}"))?;
        let written = two.iter().zip(checks).filter(|(one, check)| one.is_allowed() && check.cost > 0);
        self.lives(written.map(|(one, _)| one))?;
        self.reset = self.now + two.iter().map(|outcome| micros(outcome.reset_after())).max().unwrap_or(0);
        Ok((found, expected))
    }

    fn compare(
        &mut self,
        is_like: bool,
        on: Vec<Check>,
        change: Option<Change>,
        how: impl FnOnce() -> String,
    ) -> Checked {
        self.on.holds(true, || "");
        let call = (self.now, on, change);
        if !is_like {
            let tell = |(now, checks, change): &Call| {
                let change = change.map_or(String::new(), |change| format!("{change:?} to "));
                format!("at {} us {change}{}", i128::from(*now) - i128::from(START), describe_checks(checks))
            };
            let before: Vec<_> = self.calls.iter().map(tell).collect();
            return Err(Stop::Differs(format!("{}: {}, after: {}", tell(&call), how(), before.join("; "))));
        }
        self.calls.push(call);
        Ok(())
    }

    fn lives<'a>(&self, mut written: impl Iterator<Item = &'a Outcome>) -> Checked {
        let is_short = |outcome: &Outcome| outcome.reset_after() > Duration::ZERO && outcome.reset_after() < LIFE;
        let forgets = self.on.forgets && (self.since.elapsed() > LIFE || written.any(is_short));
        if forgets { Err(Stop::Forgets) } else { Ok(()) }
    }

    /// Compares, for some denied requests, that they are denied a tick before the time to retry, and allowed then. With
    /// a ban they are not decided before, because that may be a strike.
    ///
    /// Not on a clock that steps back: a state that is set aside because it is far ahead counts again after the wait.
    async fn wait_as_told(&mut self, checks: &[Check], expected: &StoreDecision) -> Checked {
        let Some(wait) = expected.decision.retry_after().filter(|_| self.on.clock.is_some() && !self.has(Back)) else {
            return Ok(());
        };
        // Slots may be held for longer than a ban.
        let is_guess = |outcome: &Outcome| {
            outcome.retry_is_guess() || outcome.is_banned() && outcome.quota().algorithm() == Algorithm::Concurrency
        };
        let is_exact =
            !expected.decision.denied_by().any(is_guess) && checks.iter().all(|check| check.mode == Mode::Enforce);
        let (then, has_bans) = (self.now + micros(wait), self.has(Bans));
        if !is_exact || self.rng.bool() || has_bans && then % CELL >= CELL / 2 {
            return Ok(());
        }
        let tick = checks.iter().map(|check| tick(check.counter.quota())).max().unwrap_or(1);
        let is_late = has_bans || then < self.now + tick;
        for (time, is_allowed) in [(then - tick, false), (then, true)].into_iter().skip(is_late.into()) {
            self.now = time;
            let (found, _) = self.decide(checks).await?;
            let found = found.decision.is_allowed();
            self.compare(found == is_allowed, checks.to_vec(), None, || {
                format!("expected {is_allowed} after a wait of {wait:?} as told, found {found}")
            })?;
        }
        if has_bans {
            self.now = (then / CELL + 1) * CELL;
        }
        Ok(())
    }

    async fn change(&mut self) -> Checked {
        if self.rng.u8(..3) == 0 && !self.receipts.is_empty() {
            let (checks, found, expected) = self.receipts.swap_remove(self.rng.usize(..self.receipts.len()));
            let index = self.rng.usize(..checks.len());
            let change = self.any_change(checks[index].counter.quota());
            let (changes, kept) = ([Settlement::new(index, change)], (again(&found, None), again(&expected, None)));
            let found = self.on.settle(found, &changes).await?;
            let expected = settled(self.model.settle(expected.receipt, &changes).wait().await)?;
            self.compare_applied(&found, &expected, &checks[index], change)?;
            let is_kept = matches!(change, Change::Refund(_) | Change::Renew(_));
            if let (true, [found], [expected], [_]) = (is_kept, &found[..], &expected[..], &checks[..]) {
                let (one, two) = (again(&kept.0, Some((change, found))), again(&kept.1, Some((change, expected))));
                self.receipts.push((checks, one, two));
            }
        }
        let quota = self.quotas[self.rng.usize(..self.quotas.len())][0];
        let change = match self.rng.u8(..40) {
            0..5 => self.any_change(&quota),
            5 if !self.has(Back) => Change::Reset,
            _ => return Ok(()),
        };
        let counter = self.counter(quota);
        let found = self.on.adjust(&counter, change).await?;
        let expected = settled(self.model.adjust(&counter, change).wait().await)?;
        self.compare_applied(&[found], &[expected], &Check::new(counter, 0), change)
    }

    fn any_change(&mut self, quota: &Quota) -> Change {
        if self.has(Bans) && self.rng.bool() {
            return if self.rng.u8(..4) == 0 { Change::Lift } else { Change::Strike(self.ban) };
        }
        let units = [1, 2, 3, quota.capacity() / 3, quota.capacity(), u64::MAX][self.rng.usize(..6)];
        match self.rng.u8(..4) {
            0 if quota.algorithm() == Algorithm::Concurrency => Change::Renew(units),
            0 | 1 if !self.has(Back) => Change::Refund(units),
            _ => Change::Charge(units),
        }
    }

    fn compare_applied(
        &mut self,
        found: &[ChangeResult],
        expected: &[ChangeResult],
        on: &Check,
        change: Change,
    ) -> Checked {
        let of = |applied: &[ChangeResult]| {
            applied.iter().map(|one| (one.units, one.banned_for.is_some(), one.ban_began())).collect()
        };
        let (found, units): (Vec<_>, Vec<_>) = (of(found), of(expected));
        let how = || format!("expected {units:?}, found {found:?}");
        self.compare(found == units, vec![on.clone()], Some(change), how)?;
        self.lives(expected.iter().filter_map(|applied| applied.outcome.as_ref()))
    }
}

/// Microseconds of the quota's tick.
fn tick(quota: &Quota) -> u64 {
    if quota.window() > us(60 * S) { MS } else { 1 }
}

fn settled<T>(applied: Result<T, Error>) -> Result<T, Stop> {
    applied.map_err(|error| Stop::failed("the store to compare with", &error))
}
