//! Random requests, each compared with the store in memory.
//!
//! A server forgets states by its own time while the clock is the suite's. So whatever is written here lives for
//! [`SHORTEST_LIFE`] at least: windows are as long, a unit of a bucket returns no sooner, and the clock keeps away from
//! the ends of windows. A trace that took longer in real time ends there.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::case::Case;
use super::rows::{Answer, MS, S, are_alike, micros, us};
use super::subject::{Checked, Stop, Subject};
use crate::core::{Algorithm, Ban, Decision, Error, Outcome, Quota};
use crate::store::{Applied, Ask, BanCheck, Change, Check, Decided, MemoryStore, Mode, Settlement, Store};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    requests_with_one_check,
    requests_with_one_check_of_a_reserve_and_settlements,
    requests_with_several_checks_and_all_that_changes_counters,
    requests_on_a_clock_that_steps_back,
    requests_of_keys_that_may_be_banned,
    requests_of_keys_that_may_be_banned_on_a_clock_that_steps_back,
];

const SHORTEST_LIFE: Duration = Duration::from_secs(10);
const TRACES: u64 = 20;
const STEPS: usize = 40;

/// Where the clock may stand: a multiple of this, or a little later; it divides all windows.
const CELL: u64 = 30 * S;

/// What the requests of a trace may have.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
struct Course {
    most_checks: usize,
    has_floors: bool,
    settles: bool,
    steps_back: bool,
    bans: bool,
}

impl Course {
    /// Requests with so many checks at most, and nothing else.
    const fn of(most_checks: usize) -> Self {
        Self { most_checks, has_floors: false, settles: false, steps_back: false, bans: false }
    }
}

async fn requests_with_one_check(on: &Subject) -> Checked {
    let course = Course::of(1);
    let mut left_out = None;
    for quota in quotas(&mut on.random()) {
        match run(on, course, &[quota]).await {
            Err(Stop::Unsupported(reason)) => left_out = Some(reason),
            other => other?,
        }
    }
    left_out.map_or(Ok(()), |reason| Err(Stop::Unsupported(reason)))
}

async fn requests_with_one_check_of_a_reserve_and_settlements(on: &Subject) -> Checked {
    let course = Course { has_floors: true, settles: true, ..Course::of(1) };
    run(on, course, &quotas(&mut on.random())).await
}

async fn requests_with_several_checks_and_all_that_changes_counters(on: &Subject) -> Checked {
    let course = Course { has_floors: true, settles: true, ..Course::of(4) };
    run(on, course, &quotas(&mut on.random())).await
}

/// A refund may leave a bucket so little that a server forgets it at once, and with it how far the clock had come: so
/// nothing is refunded here.
async fn requests_on_a_clock_that_steps_back(on: &Subject) -> Checked {
    let course = Course { has_floors: true, steps_back: true, ..Course::of(3) };
    run(on, course, &quotas(&mut on.random())).await
}

/// All checks of a trace share their ban, which changes now and then.
async fn requests_of_keys_that_may_be_banned(on: &Subject) -> Checked {
    let course = Course { has_floors: true, settles: true, bans: true, ..Course::of(3) };
    run(on, course, &quotas(&mut on.random())).await
}

async fn requests_of_keys_that_may_be_banned_on_a_clock_that_steps_back(on: &Subject) -> Checked {
    let course = Course { has_floors: true, steps_back: true, bans: true, ..Course::of(3) };
    run(on, course, &quotas(&mut on.random())).await
}

/// A ban of which each state lives for long enough, wherever in the first half of a cell the clock stands.
fn any_ban(rng: &mut Rng) -> Ban {
    let within = us(rng.u64(1..20) * CELL + 27 * S);
    let time = us(rng.u64(1..10) * CELL);
    let ban = Ban::new([1, 2, 2, 3, 5][rng.usize(..5)], within, time);
    let ban = if rng.u8(..4) == 0 { ban.extending() } else { ban };
    if rng.bool() { ban } else { ban.growing([1.0, 1.5, 2.0, 3.333][rng.usize(..4)], us(rng.u64(10..40) * CELL)) }
}

/// Some quotas of each algorithm.
fn quotas(rng: &mut Rng) -> Vec<Quota> {
    let each = Algorithm::ALL.iter().filter(|(name, algorithm)| *name == algorithm.name());
    let mut quotas = Vec::new();
    for (_, algorithm) in each {
        for limit in [3, 5, 6, 12, 30] {
            let window = us(60 * CELL * rng.u64(1..4));
            let Ok(quota) = Quota::try_new(*algorithm, limit, window) else { continue };
            // Each of them is refused but by the algorithm that has it.
            let quota = quota.try_burst(rng.u64(1..20)).unwrap_or(quota);
            quotas.push(quota.try_queue(rng.u64(..12)).unwrap_or(quota));
        }
    }
    #[cfg(feature = "calendar")]
    quotas.extend(of_calendars());
    quotas
}

/// Some quotas of calendars, in the one zone that every system has.
#[cfg(feature = "calendar")]
fn of_calendars() -> impl Iterator<Item = Quota> {
    use crate::core::Calendar;
    let calendars = [Calendar::hourly("UTC"), Calendar::daily("UTC"), Calendar::monthly("UTC")];
    let limits = [5, 12, 30];
    calendars.into_iter().flatten().zip(limits).map(|(calendar, limit)| Quota::calendar_window(limit, calendar))
}

async fn run(on: &Subject, course: Course, quotas: &[Quota]) -> Checked {
    let mut rng = on.random();
    let traces = if quotas.len() == 1 { 1 } else { TRACES };
    for _ in 0..traces {
        let (ban, rng) = (any_ban(&mut rng), rng.fork());
        for again in (0..attempts(on)).rev() {
            on.next_key();
            let before = on.differences();
            let (rng, model) = (rng.clone(), on.model());
            Trace { on, course, quotas, ban, rng, model, receipts: Vec::new() }.run().await?;
            if again == 0 || on.differences() == before {
                break;
            }
            on.forget_differences(before);
        }
    }
    Ok(())
}

/// How often a trace that differs is run, each time with a new key. It counts if it differs each time.
///
/// By a clock of its own a store decides a moment before the one it is compared with, and a unit may come back in
/// between. What a store does wrong differs in each run of the same requests.
fn attempts(on: &Subject) -> usize {
    if on.tolerance() > Duration::ZERO { 5 } else { 1 }
}

/// One trace: the store, and one in memory which receives the same requests.
struct Trace<'a> {
    on: &'a Subject,
    course: Course,
    quotas: &'a [Quota],
    ban: Ban,
    rng: Rng,
    model: MemoryStore,
    receipts: Vec<(Vec<Check>, Decided, Decided)>,
}

impl Trace<'_> {
    async fn run(&mut self) -> Checked {
        let (mut now, since) = (100_000 * CELL, Instant::now());
        for step in 0..STEPS {
            now = self.later(now);
            self.on.at(now)?;
            let checks = self.request();
            let found = self.on.decide(&checks).await?;
            let expected =
                self.model.decide(&checks, Ask::default()).wait().await.map_err(|error| model_failed(&error))?;
            if since.elapsed() > SHORTEST_LIFE {
                return Ok(());
            }
            if !self.compare(&format!("step {step} at {now} us"), &checks, &found, &expected) {
                // What follows would differ because of it.
                return Ok(());
            }
            if let Some(then) = self.told_to_wait(now, &checks, &expected) {
                self.wait_as_told(then, &checks).await?;
                now = (then / CELL + 1) * CELL;
            }
            self.receipts.push((checks, found, expected));
            if self.course.settles {
                self.change().await?;
            }
        }
        Ok(())
    }

    fn later(&mut self, now: u64) -> u64 {
        if self.on.tolerance() > Duration::ZERO {
            return now;
        }
        let cell = now / CELL;
        let cell = match self.rng.u32(..20) {
            0 if self.course.steps_back => cell - self.rng.u64(1..100),
            1 => cell + self.rng.u64(1..200),
            2..8 => cell + self.rng.u64(1..6),
            _ => return now,
        };
        cell * CELL
    }

    fn request(&mut self) -> Vec<Check> {
        if self.rng.u8(..30) == 0 {
            self.ban = any_ban(&mut self.rng);
        }
        let checks = self.rng.usize(1..=self.course.most_checks);
        (0..checks).map(|_| self.check()).collect()
    }

    fn check(&mut self) -> Check {
        let Self { rng, quotas, course, ban, .. } = self;
        let quota = quotas[rng.usize(..quotas.len())];
        let most = quota.capacity();
        let cost = [0, 1, 1, 1, 1, 2, 3, most, most + 1, u64::MAX][rng.usize(..10)];
        let floor = if course.has_floors && rng.u8(..6) == 0 { [1, 2, 30, u64::MAX][rng.usize(..4)] } else { 0 };
        let mode = if rng.u8(..6) == 0 { Mode::Shadow } else { Mode::Enforce };
        let check = self.on.check(quota, cost).floor(floor).mode(mode);
        if !course.bans || rng.u8(..4) == 0 {
            return check;
        }
        check.ban(BanCheck::new(*ban).counts(rng.u8(..6) > 0))
    }

    /// Returns when a request that is refused now is admitted, for some of those that a wait helps.
    ///
    /// Not on a clock that steps back: a state so far ahead that it is set aside counts again after the wait.
    fn told_to_wait(&mut self, now: u64, checks: &[Check], expected: &Decided) -> Option<u64> {
        let is_set = self.on.tolerance() == Duration::ZERO && !self.course.steps_back && self.rng.bool();
        // Slots may be held for longer than a ban.
        let is_guess = |outcome: &Outcome| outcome.retry_is_guess() || outcome.is_banned() && outcome.is_held();
        let is_exact = !expected.decision.violated().any(is_guess);
        let wait = expected.decision.retry_after().filter(|_| is_set && is_exact)?;
        let then = now + micros(wait);
        // Not where a window soon ends: what is written then would not live long.
        (checks.iter().all(|check| check.mode == Mode::Enforce) && then % CELL < CELL / 2).then_some(then)
    }

    /// Compares that a request is refused a millisecond before the time to retry, and admitted then. With a ban it is
    /// not asked before, as that may be a strike.
    async fn wait_as_told(&mut self, then: u64, checks: &[Check]) -> Checked {
        let has_bans = checks.iter().any(|check| check.ban.is_some());
        for (time, is_allowed) in [(then - MS, false), (then, true)].into_iter().skip(has_bans.into()) {
            self.on.at(time)?;
            let found = self.on.decide(checks).await?;
            let expected =
                self.model.decide(checks, Ask::default()).wait().await.map_err(|error| model_failed(&error))?;
            let place = format!("told to wait until {then} us, at {time} us");
            let of_checks = || checks.iter().map(of_check).collect::<Vec<_>>().join(", ");
            self.on.equal(found.decision.is_allowed(), is_allowed, || format!("{place}: {}", of_checks()));
            self.compare(&place, checks, &found, &expected);
        }
        Ok(())
    }

    /// Compares two decisions; returns whether they are alike.
    fn compare(&self, place: &str, checks: &[Check], found: &Decided, expected: &Decided) -> bool {
        let tolerance = self.on.tolerance();
        let (one, two) = (&found.decision, &expected.decision);
        let are_outcomes_alike = one.outcomes().len() == two.outcomes().len()
            && one.outcomes().iter().zip(two.outcomes()).all(|(one, two)| are_alike(one, two, tolerance));
        let combined = |decision: &Decision| {
            (decision.is_allowed(), decision.retry_after().is_some(), decision.binding().map(Outcome::quota).copied())
        };
        let is_like = are_outcomes_alike && combined(one) == combined(two) && units(found) == units(expected);
        self.on.holds(is_like, || {
            let checks: Vec<_> = checks.iter().map(of_check).collect();
            format!("{place}: {}: expected {}, found {}", checks.join(", "), of_decided(expected), of_decided(found))
        });
        is_like
    }

    /// Refunds or charges to a request or a counter, or resets one.
    async fn change(&mut self) -> Checked {
        if self.rng.u8(..3) == 0 && !self.receipts.is_empty() {
            let (checks, found, expected) = self.receipts.swap_remove(self.rng.usize(..self.receipts.len()));
            let place = self.rng.usize(..checks.len());
            let changes = [Settlement::new(place, self.any_change(checks[place].counter.quota()))];
            let found = self.on.settle_all(found, &changes).await?;
            let expected =
                self.model.settle(expected.receipt, &changes).wait().await.map_err(|error| model_failed(&error))?;
            self.compare_applied(&found, &expected, &format!("{changes:?} to {checks:?}"));
        }
        let counter = self.on.counter(self.quotas[self.rng.usize(..self.quotas.len())]);
        if self.rng.u8(..20) == 0 {
            let change = self.any_change(counter.quota());
            let found = self.on.adjust(&counter, change).await?;
            let expected = self.model.adjust(&counter, change).wait().await.map_err(|error| model_failed(&error))?;
            self.compare_applied(&[found], &[expected], &format!("{change:?} to {counter:?}"));
        }
        if self.rng.u8(..60) == 0 {
            self.on.reset_counter(&counter).await?;
            self.model.adjust(&counter, Change::Reset).wait().await.map_err(|error| model_failed(&error))?;
        }
        Ok(())
    }

    fn any_change(&mut self, quota: &Quota) -> Change {
        if self.course.bans && self.rng.bool() {
            return if self.rng.u8(..4) == 0 { Change::Lift } else { Change::Strike(self.ban) };
        }
        let units = if self.rng.u8(..30) == 0 { u64::MAX } else { self.rng.u64(..8) };
        match self.rng.u8(..4) {
            0 if quota.facts().held => Change::Renew(units),
            0 | 1 => Change::Refund(units),
            _ => Change::Charge(units),
        }
    }

    fn compare_applied(&self, found: &[Applied], expected: &[Applied], what: &str) {
        let units =
            |applied: &[Applied]| applied.iter().map(|one| (one.units, one.banned_for.is_some())).collect::<Vec<_>>();
        self.on.equal(units(found), units(expected), || what);
    }
}

fn units(decided: &Decided) -> Vec<u64> {
    decided.receipt.taken().iter().map(|taken| taken.units).collect()
}

/// A check, in short.
fn of_check(check: &Check) -> String {
    let Check { counter, cost, floor, mode, ban, .. } = check;
    let ban = ban.as_ref().map_or(String::new(), |ban| format!(" with {ban:?}"));
    let floor = if *floor > 0 { format!(" above a floor of {floor}") } else { String::new() };
    let mode = if *mode == Mode::Shadow { " in shadow mode" } else { "" };
    format!("{cost} of {}{floor}{mode}{ban}", counter.quota())
}

/// A decision, in short.
fn of_decided(decided: &Decided) -> String {
    let each = decided.decision.outcomes().iter().map(|outcome| format!("{:?}", Answer::of(outcome)));
    let allowed = if decided.decision.is_allowed() { "admitted" } else { "refused" };
    format!("{allowed}, {} with {:?} taken", each.collect::<Vec<_>>().join(", "), units(decided))
}

fn model_failed(error: &Error) -> Stop {
    Stop::Failed(format!("the store to compare with failed: {error}"))
}
