//! Windows that are aligned to the wall clock, when it is set: after a start at a wrong time, or when a machine slept.

use std::time::Duration;

use futures::FutureExt;
use tollgate::policy::Calendar;
use tollgate::store::{Ask, Check, LeaseStore, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Key, Limiter, MemoryStore, Quota, Rule, Source};

use crate::support::checks::check;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const MS: Duration = Duration::from_millis(1);

/// Some minutes, for which a clock is far ahead or behind.
const MONTHS: i64 = 100 * 24 * 60;

/// When clocks begin: ten minutes into a window of an hour, and of a day.
const START: Duration = later(0);

/// The time so many minutes after the start.
const fn later(minutes: i64) -> Duration {
    let seconds = ManualClock::EPOCH.as_secs().cast_signed() + (10 + minutes) * 60;
    Duration::from_secs(seconds.cast_unsigned())
}

fn memory(clock: &ManualClock) -> MemoryStore {
    clock.set(START);
    MemoryStore::builder().clock(clock.clone()).build()
}

fn leases(clock: &ManualClock) -> LeaseStore {
    LeaseStore::builder(memory(clock)).clock(clock.clone()).build()
}

/// Limiters of one rule on each kind of store that keeps time in this process.
const LIMITERS: [fn(&ManualClock, Rule) -> Limiter; 3] = [
    |clock, rule| Limiter::new(memory(clock), [rule]),
    |clock, rule| Limiter::new(leases(clock), [rule]),
    |clock, rule| Limiter::new(LeaseStore::builder(memory(clock)).overdraft(10).clock(clock.clone()).build(), [rule]),
];

async fn take(limiter: &Limiter) -> Decision {
    limiter.check(&Key::new("user", "ada")).await.expect("it decides")
}

/// Takes the only unit of a quota, sets the wall clock, and returns whether there is one again, or how long to wait.
#[track_caller]
fn assert_after(quota: Quota, wall: Duration, wait: Option<Duration>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for make in LIMITERS {
            let clock = ManualClock::paused();
            let limiter = make(&clock, Rule::new("mail", quota));
            assert!(take(&limiter).await.is_allowed());
            assert!(!take(&limiter).await.is_allowed());
            clock.set_wall(wall);
            let decision = take(&limiter).await;
            assert_eq!(decision.retry_after(), wait, "{limiter:?}");
            assert_eq!(decision.is_allowed(), wait.is_none(), "{limiter:?}");
        }
    });
}

fn daily() -> Quota {
    Quota::calendar_window(1, Calendar::daily("UTC").expect("the system has time zones"))
}

/// Uses a quota up five minutes before the end of its window, sets the wall clock back, and has six minutes and many
/// other keys pass.
#[track_caller]
fn assert_stays_used_up(quota: Quota, end: Duration, capacity: usize) {
    let clock = ManualClock::new();
    clock.set(end.saturating_sub(5 * MINUTE));
    let store = MemoryStore::builder().clock(clock.clone()).capacity(capacity).build();
    let decide = |key: &str, quota| decide(&store, &check(key, quota, 1)).now_or_never().expect("at once");
    while decide("ada", quota).is_allowed() {}
    clock.set_wall(end.saturating_sub(15 * MINUTE));
    clock.advance(6 * MINUTE);
    for other in 0..10_000 {
        let _ = decide(&other.to_string(), Quota::per_minute(10));
    }
    let refused = decide("ada", quota);
    assert!(!refused.is_allowed(), "{quota:?}");
    clock.advance(refused.retry_after().expect("a wait").saturating_sub(MS));
    assert!(!decide("ada", quota).is_allowed(), "{quota:?} is early");
    clock.advance(MS);
    assert!(decide("ada", quota).is_allowed(), "{quota:?} is late");
}

#[test]
fn a_window_whose_end_is_later_by_a_wall_clock_that_was_set_back_is_not_dropped_before_it() {
    for capacity in [20_000, 1_000_000] {
        assert_stays_used_up(Quota::fixed_window(5, HOUR), ManualClock::EPOCH + HOUR, capacity);
        assert_stays_used_up(daily(), ManualClock::EPOCH + DAY, capacity);
    }
}

#[test]
fn aligned_windows_end_by_the_wall_clock() {
    for (quota, length) in [(Quota::fixed_window(1, HOUR), HOUR), (daily(), DAY)] {
        let end = ManualClock::EPOCH + length;
        assert_after(quota, START, Some(end.abs_diff(START)));
        assert_after(quota, later(22), Some(end.abs_diff(later(22))));
        assert_after(quota, end.saturating_sub(MS), Some(MS));
        assert_after(quota, end, None);
        assert_after(quota, later(MONTHS), None);
    }
    // At the end of its window a unit still counts in full.
    let (sliding, end) = (Quota::sliding_window(1, HOUR), ManualClock::EPOCH + HOUR);
    assert_after(sliding, later(22), Some(28 * MINUTE + MS));
    assert_after(sliding, end, Some(MS));
    assert_after(sliding, end + MS, None);
    assert_after(sliding, later(MONTHS), None);
}

#[test]
fn a_wall_clock_that_steps_back_counts_no_window_anew_and_a_far_future_no_more() {
    let quotas = [(Quota::fixed_window(1, HOUR), HOUR), (daily(), DAY), (Quota::sliding_window(1, HOUR), HOUR + MS)];
    for (quota, length) in quotas {
        assert_after(quota, later(-22), Some(length + 12 * MINUTE));
        assert_after(quota, later(-MONTHS), None);
        assert_after(quota, Duration::ZERO, None);
    }
}

#[test]
fn rates_do_not_see_the_wall_clock() {
    for quota in [Quota::per_hour(1), Quota::sliding_log(1, HOUR), Quota::leaky_bucket(1, HOUR)] {
        for wall in [later(-MONTHS), later(-1), later(1), later(MONTHS)] {
            assert_after(quota, wall, Some(HOUR));
        }
    }
}

async fn decide(store: &impl Store, check: &Check) -> Decision {
    store.decide(std::slice::from_ref(check), Ask::default()).wait().await.expect("it decides").decision
}

/// A store that holds a lease of a quota, and the check that it is for.
async fn leased(clock: &ManualClock, quota: Quota) -> (LeaseStore, Check) {
    let (store, check) = (leases(clock), check("ada", quota, 1));
    while decide(&store, &check).await.source() != Source::Lease {
        clock.advance(MS);
    }
    assert!(store.counts().held() > 0);
    (store, check)
}

#[tokio::test]
async fn a_lease_of_a_window_ends_with_it_by_the_wall_clock() {
    for (quota, ahead) in [(Quota::fixed_window(1_000, HOUR), HOUR), (Quota::sliding_window(1_000, HOUR), 2 * HOUR)] {
        let clock = ManualClock::new();
        let (store, check) = leased(&clock, quota).await;
        clock.set_wall(ManualClock::EPOCH + ahead);
        let look = decide(&store, &check.clone().cost(0)).await;
        assert_eq!(look.outcomes()[0].remaining(), 1_000, "nothing of the last window is held");
        let mut admitted = 0;
        for _ in 0..2_000 {
            let decision = decide(&store, &check).await;
            assert!(decision.outcomes()[0].reset_after() > 59 * MINUTE, "that of the new window");
            admitted += u32::from(decision.is_allowed());
        }
        assert_eq!(admitted, 1_000);
    }
    let clock = ManualClock::new();
    let (store, check) = leased(&clock, Quota::fixed_window(1_000, HOUR)).await;
    clock.set_wall(later(-22));
    let reset = decide(&store, &check).await.outcomes()[0].reset_after();
    assert_eq!(reset.as_secs(), 72 * 60, "it is over when the clock steps back, too");
}
