//! What a quota may be.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::policy::Algorithm;
use tollgate::{Error, Quota};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A window, or the shortest one that an algorithm accepts.
fn at_least(algorithm: Algorithm, window: Duration) -> Duration {
    if algorithm == Algorithm::Concurrency { window.max(2 * SECOND) } else { window }
}

/// The reason a quota is refused for.
#[track_caller]
fn refusal(quota: Result<Quota, Error>) -> String {
    quota.expect_err("it is refused").to_string()
}

/// Checks that a refusal names the largest that is accepted, and that just this is so.
#[track_caller]
fn assert_most(accept: impl Fn(u64) -> Result<Quota, Error>) -> u64 {
    let told = refusal(accept(u64::MAX));
    let most = told.split("at most ").nth(1).unwrap_or_else(|| panic!("{told} names the largest"));
    let digits: String = most.chars().take_while(char::is_ascii_digit).collect();
    let most = digits.parse().unwrap_or_else(|_| panic!("{told} names the largest"));
    assert!(accept(most).is_ok(), "{most} is accepted: {told}");
    assert!(refusal(accept(most + 1)).contains(&format!("at most {most}")), "{most}: {told}");
    most
}

/// Windows of either grain, also just below and above 60 s.
fn windows() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..=60_000_000_u64).prop_map(Duration::from_micros),
        (60_001..=4_000_000_000_u64).prop_map(Duration::from_millis),
        (0..=36_u32).prop_map(|bits| Duration::from_micros(1 << bits.min(25))),
        (0..8_u64).prop_map(|more| Duration::from_secs(57 + more)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_largest_limit_burst_and_queue_are_those_that_the_errors_name(
        algorithm in proptest::sample::select(Algorithm::ALL), window in windows(), random in any::<u64>(), bits in 0..64_u32,
    ) {
        let window = at_least(algorithm, window);
        let most = assert_most(|limit| Quota::try_new(algorithm, limit, window));
        let quota = Quota::try_new(algorithm, (random >> bits).clamp(1, most), window).expect("it is no more than that");
        match algorithm {
            Algorithm::TokenBucket => drop(assert_most(|burst| quota.try_burst(burst))),
            Algorithm::LeakyBucket => {
                let most = assert_most(|places| quota.try_queue(places));
                prop_assert_eq!(quota.queue(most).capacity(), most + 1);
            }
            _ => {}
        }
    }
}

#[test]
fn nothing_and_no_time_are_refused() {
    for &algorithm in Algorithm::ALL {
        assert!(refusal(Quota::try_new(algorithm, 0, SECOND)).contains("limit 0"), "{algorithm:?}");
        assert!(refusal(Quota::try_new(algorithm, 1, Duration::ZERO)).contains("window 0s"), "{algorithm:?}");
        assert!(refusal(Quota::try_new(algorithm, 1, Duration::MAX)).contains("is too long"), "{algorithm:?}");
    }
    assert!(refusal(Quota::per_second(1).try_burst(0)).contains("at least 1"));
    let most = [Quota::try_per_second, Quota::try_per_minute, Quota::try_per_hour].map(assert_most);
    assert_eq!(most, [1_000_000_000_000; 3]);
}

#[test]
fn the_largest_limits_are_those_of_the_bounds() {
    let most = |algorithm, window| assert_most(|limit| Quota::try_new(algorithm, limit, window));
    assert_eq!(most(Algorithm::FixedWindow, SECOND), (1 << 49) - 1);
    assert_eq!(most(Algorithm::SlidingLog, SECOND), 10_000);
    assert_eq!(most(Algorithm::SlidingWindow, Duration::from_micros(1)), (1 << 47) - 1);
    assert_eq!(most(Algorithm::SlidingWindow, 69 * YEAR), (1 << 47) - 1);
    let millisecond = Duration::from_millis(1);
    assert_eq!(most(Algorithm::TokenBucket, millisecond), ((1 << 52) - 1 - 1_000) / 2_000);
    assert_eq!(most(Algorithm::LeakyBucket, millisecond), ((1 << 50) - 1) / 1_000);
    assert_eq!([SECOND, DAY, 69 * YEAR].map(|window| most(Algorithm::TokenBucket, window)), [1_000_000_000_000; 3]);
    assert_eq!([SECOND, DAY, 69 * YEAR].map(|window| most(Algorithm::LeakyBucket, window)), [1_000_000_000_000; 3]);
    assert_eq!([2 * SECOND, 20 * YEAR].map(|life| most(Algorithm::Concurrency, life)), [1_000_000; 2]);
    assert_eq!(assert_most(Quota::try_concurrency), 1_000_000);
}

#[test]
fn a_sliding_log_of_more_than_ten_thousand_has_to_be_asked_for() {
    let long = Quota::try_long_sliding_log(10_001, SECOND).expect("it is asked for");
    assert_eq!((long.limit(), long.capacity()), (10_001, 10_001));
    assert_eq!(assert_most(|limit| Quota::try_long_sliding_log(limit, SECOND)), 1_000_000);
}

#[test]
fn a_burst_a_queue_and_slots_are_refused_where_there_are_none() {
    for &algorithm in Algorithm::ALL {
        let quota = Quota::try_new(algorithm, 5, at_least(algorithm, SECOND)).expect("within the bounds");
        assert_eq!(quota.try_burst(2).is_ok(), algorithm == Algorithm::TokenBucket, "{algorithm:?}");
        assert_eq!(quota.try_queue(2).is_ok(), algorithm == Algorithm::LeakyBucket, "{algorithm:?}");
        assert_eq!(quota.try_nodelay(1).is_ok(), algorithm == Algorithm::LeakyBucket, "{algorithm:?}");
        let has_slots = algorithm == Algorithm::Concurrency;
        assert_eq!(quota.try_slot_ttl(4 * SECOND).is_ok(), has_slots, "{algorithm:?}");
        assert_eq!(quota.try_max_hold(4 * SECOND).is_ok(), has_slots, "{algorithm:?}");
    }
}

#[test]
fn as_many_start_at_once_as_the_queue_and_one_and_at_least_one() {
    let strict = Quota::leaky_bucket(6, SECOND);
    assert_eq!(refusal(strict.try_nodelay(0)), "nodelay 0 lets nothing start: it must be at least 1");
    let most = "nodelay 2 is more than the queue holds: it must be at most 1, or a longer queue";
    assert_eq!(refusal(strict.try_nodelay(2)), most);
    assert_eq!(assert_most(|requests| strict.queue(4).try_nodelay(requests.max(1))), 5);
    let long = Quota::leaky_bucket(1 << 39, SECOND).queue(1 << 39);
    assert_eq!(refusal(long.try_nodelay((1 << 32) + 1)), "nodelay 4294967297 is too large: it must be at most 2^32");
    assert!(long.try_nodelay(1 << 32).is_ok());
    let short = "queue 3 is too short for the requests that start at once: it must be at least 4";
    assert_eq!(refusal(strict.queue(9).nodelay(5).try_queue(3)), short);
    assert_eq!(strict.queue(9).nodelay(5).try_queue(4).ok(), Some(strict.queue(4).nodelay(5)));
    assert_eq!(strict.queue(4).nodelay(1), strict.queue(4));
}

#[test]
fn a_bucket_over_decades_accepts_the_burst_and_the_queue_it_has_already() {
    for years in [50, 55, 56, 60, 69] {
        let (bucket, leaky) = (Quota::token_bucket(3, years * YEAR), Quota::leaky_bucket(1, years * YEAR));
        assert_eq!(bucket.try_burst(bucket.capacity()).ok(), Some(bucket), "{years} years");
        assert_eq!(leaky.try_queue(0).ok(), Some(leaky), "{years} years");
        assert!(leaky.try_queue(1_000_000_000).is_err(), "{years} years");
    }
}

#[test]
fn a_window_is_whole_ticks_and_not_too_long() {
    let of = |window| Quota::try_new(Algorithm::FixedWindow, 1, window);
    assert!(of(Duration::from_micros(1)).is_ok());
    assert!(refusal(of(Duration::from_nanos(1_500))).contains("whole"));
    assert!(of(Duration::from_micros(59_999_999)).is_ok());
    assert!(of(Duration::from_secs(60)).is_ok());
    assert!(refusal(of(Duration::from_micros(60_000_001))).contains("whole"));
    assert!(of(Duration::from_millis(60_001)).is_ok());
    assert!(of(Duration::from_millis((1 << 41) - 1)).is_ok());
    assert!(refusal(of(Duration::from_millis(1 << 41))).contains("too long"));
    assert!(refusal(of(Duration::MAX)).contains("window"));
    assert!(Quota::try_sliding_log(1, Duration::from_millis((1 << 32) - 1)).is_ok());
    assert!(refusal(Quota::try_sliding_log(1, Duration::from_millis(1 << 32))).contains("49 days"));
}

#[test]
fn a_slot_lives_two_heartbeats_at_least_and_is_held_for_a_second_at_least() {
    let slots = Quota::concurrency(5);
    assert_eq!((slots.limit(), slots.capacity(), slots.window()), (5, 5, Duration::from_secs(30)));
    assert_eq!(slots.slot_ttl(2 * SECOND).window(), 2 * SECOND);
    let short = "slot_ttl 1.999999s is shorter than two heartbeats: it must be at least 2s";
    assert_eq!(refusal(slots.try_slot_ttl(Duration::from_micros(1_999_999))), short);
    assert!(refusal(slots.try_slot_ttl(Duration::from_nanos(2_000_000_001))).contains("whole"));
    assert!(refusal(slots.try_slot_ttl(70 * YEAR)).contains("too long"));
    assert!(refusal(slots.try_max_hold(Duration::from_millis(999))).contains("must be at least 1s"));
    assert!(refusal(slots.try_max_hold(137 * YEAR)).contains("must be less than 136 years"));
    // Whole seconds, rounded up, whichever is set first.
    let held = slots.max_hold(Duration::from_millis(1_001)).slot_ttl(2 * SECOND);
    assert_eq!(held, slots.slot_ttl(2 * SECOND).max_hold(2 * SECOND));
    assert_ne!(held, slots.slot_ttl(2 * SECOND));
    assert_eq!(slots.to_string(), "5 at once (concurrency)");
}

#[test]
fn a_quota_per_day_is_a_token_bucket_over_24_hours() {
    const PER_DAY: Quota = Quota::per_day(86_400);
    let day = 86_400 * SECOND;
    assert_eq!(PER_DAY, Quota::token_bucket(86_400, day));
    assert_eq!((PER_DAY.window(), PER_DAY.capacity()), (day, 86_400));
    assert_eq!(Quota::try_per_day(86_400).expect("it is within the bounds"), PER_DAY);
    assert_eq!(refusal(Quota::try_per_day(0)), refusal(Quota::try_token_bucket(0, day)));
}
