//! The memory store against the definitions, recomputed from every event.
//!
//! The models keep each admitted request and share no arithmetic with the crate: levels are exact
//! rationals, found as the largest of all sums since some request.

use std::time::Duration;

use fastrand::Rng;
use tollgate::policy::Algorithm;
use tollgate::store::{Ask, Check, MaybeFuture, Store};
use tollgate::{Error, MemoryStore, Outcome, Quota};

use crate::support::checks::check;
use crate::support::clock::{EPOCH_US, ManualClock};
use crate::support::slow::many;

const US: u64 = 1;
const MS: u64 = 1_000;
const S: u64 = 1_000_000;
const DAY: u64 = 86_400 * S;

const fn micros(window: u64) -> Duration {
    Duration::from_micros(window)
}

fn whole_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no test waits that long")
}

/// Limits and windows that divide each other and that do not, from one in 30 days to 10^12 a second.
const RATES: [(u64, u64); 18] = [
    (1, 30 * DAY),
    (1_000, 30 * DAY),
    (1, DAY),
    (7, 3_600 * S),
    (7, 61 * S),
    (7, 60 * S),
    (3, S),
    (10, S),
    (13, 7 * MS),
    (1_000, S),
    (1_000_000, S),
    (1_000_000_000, DAY),
    (100_000_000, 60 * S),
    (1_000_000_000_000, S),
    (1_000_000_000_000, 366 * DAY),
    (1, US),
    (5, US),
    (3, 10 * US),
];

/// What was admitted: when, in ticks, and how many units.
#[derive(Clone, Debug)]
struct Model {
    quota: Quota,
    /// How many requests of a leaky bucket start at once.
    at_once: i128,
    events: Vec<(i128, i128)>,
}

impl Model {
    fn new(quota: Quota, at_once: u64) -> Self {
        Self { quota, at_once: at_once.into(), events: Vec::new() }
    }

    fn tick_us(&self) -> u64 {
        if self.quota.window() <= Duration::from_secs(60) { US } else { MS }
    }

    fn window(&self) -> i128 {
        i128::from(whole_micros(self.quota.window())) / i128::from(self.tick_us())
    }

    fn limit(&self) -> i128 {
        i128::from(self.quota.limit())
    }

    fn capacity(&self) -> i128 {
        i128::from(self.quota.capacity())
    }

    /// Slots that count: each of a cohort, from its first slot for 9 / 8 of a life, rounded up.
    fn slots(&self, now: i128) -> i128 {
        let part = (self.window() + 7) / 8;
        let (mut cohort, mut held) = (i128::MIN / 2, 0);
        for (time, units) in &self.events {
            if *time >= cohort + part {
                cohort = *time;
            }
            held += if cohort + part + self.window() > now { *units } else { 0 };
        }
        held
    }

    /// Units admitted in `from..to`.
    fn units(&self, from: i128, to: i128) -> i128 {
        self.events.iter().filter(|(time, _)| (from..to).contains(time)).map(|(_, units)| units).sum()
    }

    /// `limit` times the ticks until all that was admitted has left at `limit` per window: of any
    /// suffix of the events, what it holds and has not yet left, at its largest.
    fn backlog(&self, now: i128) -> i128 {
        let mut units = 0;
        let suffixes = self.events.iter().rev().map(|(time, taken)| {
            units += taken;
            units * self.window() - (now - time) * self.limit()
        });
        suffixes.max().unwrap_or(0).max(0)
    }

    /// Whether units fit, by the definition.
    fn fits(&self, now: i128, cost: i128) -> bool {
        let (window, limit, capacity) = (self.window(), self.limit(), self.capacity());
        if cost == 0 {
            return true;
        }
        let start = now - now % window;
        match self.quota.algorithm() {
            Algorithm::FixedWindow => self.units(start, start + window) + cost <= limit,
            Algorithm::SlidingLog => self.units(now - window + 1, now + 1) + cost <= limit,
            Algorithm::SlidingWindow => {
                let weight = self.units(start - window, start) * (window - now % window) / window;
                weight + self.units(start, start + window) + cost <= limit
            }
            Algorithm::TokenBucket => self.backlog(now) + cost * window <= capacity * window,
            Algorithm::LeakyBucket => cost <= capacity && self.backlog(now) <= (capacity - 1) * window,
            Algorithm::Concurrency => self.slots(now) + cost <= limit,
            other => panic!("no model of {other:?}"),
        }
    }

    fn take(&mut self, now: i128, cost: i128) {
        self.events.push((now, cost));
    }

    /// Ticks until the slot of a request admitted now, rounded up.
    fn delay(&self, now: i128) -> i128 {
        if self.quota.algorithm() == Algorithm::LeakyBucket {
            let waits = (self.backlog(now) - (self.at_once - 1) * self.window()).max(0);
            (waits + self.limit() - 1) / self.limit()
        } else {
            0
        }
    }

    /// How many requests of cost 1 are admitted one after the other, up to `most`.
    fn admits_ones(&self, now: i128, most: u64) -> u64 {
        let mut model = self.clone();
        let admitted = (0..most).take_while(|_| {
            let fits = model.fits(now, 1);
            model.take(now, 1);
            fits
        });
        admitted.count() as u64
    }

    /// Whether a full limit is admitted: one by one, as a queue admits a large request sooner.
    fn admits_all(&self, now: i128) -> bool {
        let mut last = self.clone();
        if self.capacity() > 1 {
            last.take(now, self.capacity() - 1);
        }
        self.fits(now, if self.capacity() > 1 { self.capacity() - 1 } else { 1 }) && last.fits(now, 1)
    }
}

/// A memory store with one counter.
struct Subject {
    clock: ManualClock,
    store: MemoryStore,
    quota: Quota,
}

impl Subject {
    fn new(quota: Quota) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().capacity(64).clock(clock.reader()).build();
        Self { clock, store, quota }
    }

    fn ask(&self, now_us: u64, cost: u64) -> Outcome {
        self.clock.set(now_us);
        let checks: [Check; 1] = [check("ada", self.quota, cost)];
        let MaybeFuture::Ready(decided) = self.store.decide(&checks, Ask::default()) else {
            panic!("memory answers at once")
        };
        decided.expect("memory answers").decision.outcomes()[0].clone()
    }
}

/// One random trace: each answer is checked against the model, which is asked at the times that it promises, too.
struct Trace {
    model: Model,
    subject: Subject,
    /// Each request that was admitted, for who reads of a difference.
    admitted: Vec<(u64, u64)>,
    tick_us: u64,
    /// How long the last answer says to wait, and a tick less.
    told_us: [u64; 2],
}

impl Trace {
    fn new(quota: Quota, at_once: u64) -> Self {
        let model = Model::new(quota, at_once);
        let tick_us = model.tick_us();
        Self { model, subject: Subject::new(quota), admitted: Vec::new(), tick_us, told_us: [0; 2] }
    }

    fn ticks(&self, now_us: u64) -> i128 {
        i128::from((EPOCH_US + now_us) / self.tick_us)
    }

    fn step(&mut self, now_us: u64, cost: u64) {
        let (quota, now) = (self.model.quota, self.ticks(now_us));
        let told = || format!("{quota:?}: {cost} at {now_us} after {:?}", self.admitted);
        let fits = self.model.fits(now, i128::from(cost));
        let delay = if fits && cost > 0 { self.model.delay(now) } else { 0 };
        let outcome = self.subject.ask(now_us, cost);
        assert_eq!(outcome.is_allowed(), fits, "{}: {outcome:?}", told());
        assert_eq!(self.whole_ticks(outcome.delay()), delay, "{}: {outcome:?}", told());
        if fits && cost > 0 {
            self.model.take(now, i128::from(cost));
            self.admitted.push((now_us, cost));
        }
        let wait = whole_micros(outcome.retry_after().unwrap_or(outcome.reset_after()));
        self.told_us = [wait, wait.saturating_sub(self.tick_us)];
        self.check_remaining(now_us, &outcome);
        self.check_reset(now_us, &outcome);
        if !fits {
            self.check_retry(now_us, cost, &outcome);
        }
    }

    fn whole_ticks(&self, time: Duration) -> i128 {
        let micros = i128::from(whole_micros(time));
        assert_eq!(micros % i128::from(self.tick_us), 0, "{time:?} is whole ticks");
        micros / i128::from(self.tick_us)
    }

    /// That many more are admitted at once, and not one more.
    fn check_remaining(&self, now_us: u64, outcome: &Outcome) {
        let now = self.ticks(now_us);
        let told = || format!("{outcome:?} at {now_us} after {:?}", self.admitted);
        let remaining = outcome.remaining();
        if remaining > 100 {
            let mut model = self.model.clone();
            model.take(now, i128::from(remaining) - 1);
            assert_eq!(model.admits_ones(now, 2), 1, "{}", told());
            return;
        }
        assert_eq!(self.model.admits_ones(now, 101), remaining, "{}", told());
    }

    /// The same request is refused one tick before `retry_after`, and admitted then.
    fn check_retry(&self, now_us: u64, cost: u64, outcome: &Outcome) {
        let told = || format!("{cost}: {outcome:?} at {now_us} after {:?}", self.admitted);
        let Some(wait) = outcome.retry_after() else {
            assert!(cost > self.model.quota.capacity(), "{}", told());
            return;
        };
        if self.model.quota.algorithm() == Algorithm::Concurrency {
            assert!(wait == Duration::from_secs(1) && outcome.retry_is_guess(), "{}", told());
            return;
        }
        let (now, ticks) = (self.ticks(now_us), self.whole_ticks(wait));
        assert!(ticks > 0, "{}", told());
        assert!(!self.model.fits(now + ticks - 1, i128::from(cost)), "{}", told());
        assert!(self.model.fits(now + ticks, i128::from(cost)), "{}", told());
    }

    /// A full limit is admitted at `reset_after` and not a tick earlier; by the two counts of a
    /// sliding window it may be.
    fn check_reset(&self, now_us: u64, outcome: &Outcome) {
        let told = || format!("{outcome:?} at {now_us} after {:?}", self.admitted);
        let (now, ticks) = (self.ticks(now_us), self.whole_ticks(outcome.reset_after()));
        assert!(self.model.admits_all(now + ticks), "{}", told());
        if ticks > 0 && self.model.quota.algorithm() != Algorithm::SlidingWindow {
            assert!(!self.model.admits_all(now + ticks - 1), "{}", told());
        }
    }
}

fn pick<'a, T>(rng: &mut Rng, of: &'a [T]) -> &'a T {
    &of[rng.usize(..of.len())]
}

/// Around where something happens: a unit's time, a window, a time that was told, or no time at all.
fn pause(rng: &mut Rng, quota: Quota, told: [u64; 2]) -> u64 {
    let window = whole_micros(quota.window());
    let unit = window / quota.limit();
    let about = |rng: &mut Rng, time: u64| time.saturating_sub(1) + rng.u64(..3);
    match rng.u32(..13) {
        0..4 => 0,
        10.. => *pick(rng, &told),
        4 => rng.u64(..=2 * window),
        5 => about(rng, window),
        6 => about(rng, unit),
        7 => rng.u64(..unit + 2),
        _ => rng.u64(..window / 4 + 2),
    }
}

fn cost(rng: &mut Rng, quota: Quota) -> u64 {
    let most = quota.capacity();
    match rng.u32(..12) {
        0 => 0,
        1 => most,
        2 => most + 1,
        3 | 4 => rng.u64(1..=most),
        5 => most / 2,
        6 => *pick(rng, &[2, 3, u64::MAX]),
        _ => 1,
    }
}

/// Runs random traces over all rates.
fn run(seed: u64, quota: impl Fn(&mut Rng, u64, Duration) -> Result<Quota, Error>) {
    run_at_once(seed, |rng, limit, window| Ok((quota(rng, limit, window)?, 1)));
}

/// The same, of quotas with how many requests start at once.
fn run_at_once(seed: u64, quota: impl Fn(&mut Rng, u64, Duration) -> Result<(Quota, u64), Error>) {
    let mut rng = Rng::with_seed(seed);
    for trace in 0..many(TRACES) {
        let (limit, window) = RATES[trace % RATES.len()];
        let Ok((quota, at_once)) = quota(&mut rng, limit, micros(window)) else { continue };
        let mut trace = Trace::new(quota, at_once);
        let mut now_us = rng.u64(..2 * window);
        for _ in 0..30 {
            now_us += pause(&mut rng, quota, trace.told_us);
            let cost = cost(&mut rng, quota);
            trace.step(now_us, cost);
        }
    }
}

const TRACES: [usize; 2] = [20 * RATES.len(), 400 * RATES.len()];

#[test]
fn a_fixed_window_does_what_it_is_defined_to() {
    run(1, |_, limit, window| Quota::try_fixed_window(limit, window));
}

#[test]
fn a_sliding_log_does_what_it_is_defined_to() {
    run(2, |_, limit, window| Quota::try_sliding_log(limit, window));
}

#[test]
fn a_sliding_window_does_what_it_is_defined_to() {
    run(3, |_, limit, window| Quota::try_sliding_window(limit, window));
}

#[test]
fn a_token_bucket_does_what_it_is_defined_to() {
    run(4, |rng, limit, window| {
        let burst = *pick(rng, &[limit, 1, 2, 5, limit + 3, 2 * limit, 40]);
        Quota::try_token_bucket(limit, window)?.try_burst(burst)
    });
}

#[test]
fn a_leaky_bucket_does_what_it_is_defined_to() {
    run_at_once(5, |rng, limit, window| {
        let places = *pick(rng, &[0, 0, 1, 2, 5, 40, limit]);
        let quota = Quota::try_leaky_bucket(limit, window)?.try_queue(places)?;
        let at_once = *pick(rng, &[1, 1, 1, 2, 5, places / 2 + 1, places + 1]);
        Ok((quota.try_nodelay(at_once)?, at_once))
    });
}

#[test]
fn a_concurrency_does_what_it_is_defined_to() {
    run(6, |_, limit, window| Quota::try_concurrency(limit)?.try_slot_ttl(window));
}
