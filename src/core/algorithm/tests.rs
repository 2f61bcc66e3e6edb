//! Any quota, any cost, any clock: nothing overflows and every number stays exact.

use std::time::Duration;

use proptest::prelude::*;

use super::{Adjustment, Algorithm, Capacity, CounterState, EXACT, NEVER, Step};
#[cfg(feature = "calendar")]
use crate::core::Calendar;
use crate::core::{Change, Quota};

/// Clocks stay below this many microseconds.
const LATEST_US: u64 = 1 << 51;

/// The largest number that is accepted, of those that are up to it.
fn largest(accepted: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, EXACT);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if accepted(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Numbers of every size, and those around a power of two or the end of the range.
fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(u64::MAX),
        0..10_u64,
        (0..64_u32, -1..=1_i64).prop_map(|(bits, around)| (1_u64 << bits).saturating_add_signed(around)),
        any::<u64>(),
    ]
}

/// A number from 1 to `most`, from one that may be too large.
fn within(number: u64, most: u64) -> u64 {
    if number > most { most - (number % 3).min(most - 1) } else { number.max(1) }
}

fn any_window(algorithm: Algorithm) -> impl Strategy<Value = Duration> {
    let longest = algorithm.facts().longest_window.unwrap_or((1 << 41) - 1);
    let shortest = algorithm.facts().shortest_window;
    prop_oneof![
        any_size().prop_map(move |micros| Duration::from_micros(within(micros, 60_000_000)).max(shortest)),
        (any_size(), Just(longest))
            .prop_map(|(millis, longest)| Duration::from_millis(within(millis, longest - 60_000) + 60_000)),
    ]
}

/// A quota of a window with other units, of any number the constructors accept.
fn with_units(algorithm: Algorithm, window: Duration, limit: u64, extra: u64) -> Quota {
    let most = largest(|limit| limit == 0 || Quota::try_new(algorithm, limit, window).is_ok());
    let quota = Quota::try_new(algorithm, within(limit, most), window).expect("within the bounds");
    match algorithm.facts().capacity {
        Capacity::Burst => {
            let most = largest(|burst| burst == 0 || quota.try_burst(burst).is_ok());
            quota.burst(within(extra, most))
        }
        Capacity::Queue => {
            let most = largest(|places| quota.try_queue(places).is_ok());
            let quota = quota.queue(if most == 0 { 0 } else { within(extra, most) });
            quota.nodelay(within(limit ^ extra, quota.capacity().min(1 << 32)))
        }
        Capacity::Limit => quota,
    }
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let any = |algorithm| {
        (any_window(algorithm), any_size(), any_size())
            .prop_map(move |(window, limit, extra)| with_units(algorithm, window, limit, extra))
    };
    let of_algorithms = prop::sample::select(Algorithm::ALL).prop_flat_map(any);
    #[cfg(feature = "calendar")]
    let of_algorithms = prop_oneof![7 => of_algorithms, 2 => of_calendars()];
    of_algorithms
}

/// Quotas of calendars with changes of clocks.
#[cfg(feature = "calendar")]
fn of_calendars() -> impl Strategy<Value = Quota> {
    const ZONES: &[&str] = &["Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Kolkata"];
    (0..4, prop::sample::select(ZONES), 1..=31_u8, any_size()).prop_map(|(unit, zone, anchor, limit)| {
        let calendar = match unit {
            0 => Calendar::hourly(zone),
            1 => Calendar::daily(zone),
            2 => Calendar::weekly(zone).map(|week| week.anchor(1 + anchor % 7)),
            _ => Calendar::monthly(zone).map(|month| month.anchor(anchor)),
        };
        Quota::calendar_window(within(limit, (1 << 49) - 1), calendar.expect("the system has time zones"))
    })
}

/// The next event.
#[derive(Clone, Debug)]
struct Event {
    /// Which way the clock steps, and how far.
    forward: bool,
    pause: u64,
    cost: u64,
    floor: u64,
    change: Option<(Change, bool)>,
}

fn any_event() -> impl Strategy<Value = Event> {
    let change = (0..5, any_size(), any::<bool>()).prop_map(|(kind, units, receipt)| {
        let change: fn(u64) -> Change = match kind {
            0 | 1 => Change::Refund,
            2 | 3 => Change::Charge,
            _ => Change::Renew,
        };
        (change(units), receipt)
    });
    let floor = prop_oneof![3 => Just(0), 1 => any_size()];
    (prop::bool::weighted(0.8), any_size(), any_size(), floor, prop::option::weighted(0.3, change))
        .prop_map(|(forward, pause, cost, floor, change)| Event { forward, pause, cost, floor, change })
}

/// A counter that handles one event after the other.
struct AnyCounter {
    quota: Quota,
    state: Option<CounterState>,
    now_us: u64,
}

impl AnyCounter {
    fn now(&self) -> u64 {
        self.quota.tick().ticks_in(self.now_us)
    }

    fn meets(&mut self, event: &Event) {
        let window_us = self.quota.window_ticks() * self.quota.tick().micros();
        let pause = event.pause % (3 * window_us);
        self.now_us = if event.forward { self.now_us + pause } else { self.now_us.saturating_sub(pause) };
        self.now_us = self.now_us.min(LATEST_US - 1);
        // Costs that fit are the interesting ones.
        let most = self.quota.capacity();
        let cost =
            if event.cost > most && !event.cost.is_multiple_of(4) { within(event.cost, most) } else { event.cost };
        let step = self.quota.decide(self.state.as_ref(), self.now(), cost, event.floor);
        assert_step_is_exact(&step, &self.quota);
        if step.fits && cost > 0 {
            self.state.clone_from(&step.state);
        }
        let is_possible = |change| self.quota.facts().held || !matches!(change, Change::Renew(_));
        if let Some((change, receipt)) = event.change.filter(|(change, _)| is_possible(*change)) {
            self.changes(Adjustment::new(change, if receipt { step.stamp } else { NEVER }));
        }
    }

    /// What is told to wait fits then, and not a tick earlier.
    fn waits_as_told(&self, state_is_own: bool) {
        let (quota, now) = (&self.quota, self.now());
        for cost in [1, quota.capacity()] {
            let wait = wait_as_told(quota, self.state.as_ref(), now, cost);
            let is_far = now >= quota.tick().ticks_in(LATEST_US / 2);
            assert!(wait < NEVER || is_far || !state_is_own, "{quota} never admits {cost}: {:?}", self.state);
        }
    }

    fn changes(&mut self, change: Adjustment) {
        if let Some((state, reset)) = self.quota.adjust(self.state.as_ref(), self.now(), change).state {
            assert!(reset < EXACT, "{}: {change:?} resets after {reset}", self.quota);
            assert_state_is_exact(&state, &self.quota);
            self.state = Some(state);
        }
    }
}

/// Returns the wait that is told, and checks that it is the time until the cost fits.
#[track_caller]
fn wait_as_told(quota: &Quota, state: Option<&CounterState>, now: u64, cost: u64) -> u64 {
    let fits = |wait| quota.decide(state, now + wait, cost, 0).fits;
    let step = quota.decide(state, now, cost, 0);
    assert!(step.fits || step.wait > 0, "{quota}: {step:?}");
    if !step.fits && step.wait < NEVER - 1 {
        assert!(!fits(step.wait - 1) && fits(step.wait), "{quota}: {step:?}");
    }
    if step.fits { 0 } else { step.wait }
}

#[track_caller]
fn assert_step_is_exact(step: &Step, quota: &Quota) {
    let Step { fits, remaining, wait, reset, delay, stamp, .. } = *step;
    assert!([remaining, reset, delay, stamp].iter().all(|number| *number < EXACT), "{quota}: {step:?}");
    assert!(wait <= NEVER && remaining <= quota.capacity(), "{quota}: {step:?}");
    assert!(fits || wait > 0, "{quota}: {step:?}");
    assert!(fits || delay == 0, "{quota}: {step:?}");
    if let Some(state) = &step.state {
        assert_state_is_exact(state, quota);
    }
}

/// Checks the state against its bytes in Redis, and that it is one of the quota.
#[track_caller]
fn assert_state_is_exact(state: &CounterState, quota: &Quota) {
    assert!(quota.can_read(state), "{quota}: {state:?}");
    match state {
        CounterState::Level { time, amount } => assert!(*time < EXACT && *amount < EXACT, "{quota}: {state:?}"),
        CounterState::Wide { time, units, parts } => {
            assert!(*time < EXACT && *units < 1 << 42 && *parts < quota.window_ticks(), "{quota}: {state:?}");
        }
        CounterState::Window { time, count, previous } => {
            assert!(*time < EXACT && count.max(previous) < &(1 << 48), "{quota}: {state:?}");
        }
        #[cfg(feature = "redis")]
        CounterState::LogDigest { .. } => panic!("a step never leaves a digest"),
        CounterState::Ban { .. } => panic!("no algorithm bans"),
        CounterState::Slots { cohorts } => {
            assert!((1..=16).contains(&cohorts.len()), "{quota}: {state:?}");
            assert!(cohorts.iter().all(|cohort| cohort.0 < EXACT && cohort.1 <= 1 << 31), "{quota}: {state:?}");
        }
        CounterState::Log { time, units } => {
            assert!(*time < EXACT && units.len() <= 2 * 10_000, "{quota}: {} units", units.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_number_is_exact_and_waits_are_as_told_also_of_what_another_quota_left(
        quota in any_quota(),
        others in prop::collection::vec((any_size(), any_size()), 0..4),
        start in 0..LATEST_US,
        events in prop::collection::vec(any_event(), 1..20),
    ) {
        let other = |(limit, extra)| match quota.calendar() {
            Some(calendar) => Quota::calendar_window(within(limit, (1 << 49) - 1), calendar),
            None => with_units(quota.algorithm(), quota.window(), limit, extra),
        };
        let mut state = None;
        for (place, quota) in [quota].into_iter().chain(others.into_iter().map(other)).enumerate() {
            let looked = quota.decide(state.as_ref(), quota.tick().ticks_in(start), 0, 0);
            prop_assert!(looked.fits && looked.remaining <= quota.capacity());
            let mut counter = AnyCounter { quota, state, now_us: start };
            for event in &events {
                counter.meets(event);
                counter.waits_as_told(place == 0);
            }
            state = counter.state;
        }
    }
}

/// Any bucket of which a level may reach 2^52, and any of the same window.
fn any_wide_and_other() -> impl Strategy<Value = (Quota, Quota)> {
    let algorithm = prop::sample::select(vec![Algorithm::TokenBucket, Algorithm::LeakyBucket]);
    let windows = prop_oneof![10_000..60_000_000_u64, (61_000..1_u64 << 41).prop_map(|millis| 1_000 * millis)];
    (algorithm, windows, 1_u64 << 36..=1_000_000_000_000, any_size(), any_size())
        .prop_map(|(algorithm, window, limit, other, extra)| {
            let window = Duration::from_micros(window);
            let of = |limit, extra| with_units(algorithm, window, limit, extra);
            (of(limit, u64::MAX), of(other, extra))
        })
        .prop_filter("both sides", |(wide, _)| (2 * wide.capacity() + 1).saturating_mul(wide.window_ticks()) >= EXACT)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_level_of_any_size_is_one_state_and_a_lowered_limit_refuses_until_it_fell(
        (large, other) in any_wide_and_other(),
        start in 0..LATEST_US / 2,
        events in prop::collection::vec(any_event(), 1..10),
    ) {
        let mut counter = AnyCounter { quota: large, state: None, now_us: start };
        for event in &events {
            counter.meets(event);
            let (state, now) = (counter.state.as_ref(), counter.now());
            wait_as_told(&other, state, now, 1);
            for change in [Change::Refund(event.cost), Change::Charge(event.cost)] {
                if let Some((state, reset)) = other.adjust(state, now, Adjustment::new(change, NEVER)).state {
                    prop_assert!(reset <= NEVER + other.window_ticks());
                    assert_state_is_exact(&state, &other);
                }
            }
        }
    }
}

#[test]
fn an_algorithm_is_read_by_its_name_and_a_token_bucket_also_as_gcra() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse::<Algorithm>().ok(), Some(*algorithm));
    }
    assert_eq!("gcra".parse::<Algorithm>().ok(), Some(Algorithm::TokenBucket));
    let error = "ban".parse::<Algorithm>().expect_err("no quota has it").to_string();
    assert!(error.starts_with("algorithm \"ban\" is unknown: use one of fixed_window, sliding_log, "), "{error}");
}
