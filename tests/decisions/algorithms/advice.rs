//! The error of a limit that is too large names the largest one.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::policy::Algorithm;
use tollgate::{Error, Quota};

const MILLION: u64 = 1_000_000;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(Algorithm::ALL)
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

/// Limits of every magnitude.
fn limits() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(random, bits)| (random >> bits).max(1))
}

/// Does what an error says.
fn follow(error: &str, algorithm: Algorithm, window: Duration) {
    let (_, advice) = error.split_once("give at most ").unwrap_or_else(|| panic!("{error} names the largest"));
    let most: u64 = advice.parse().unwrap_or_else(|_| panic!("{error} ends with a number"));
    assert!(Quota::try_new(algorithm, most, window).is_ok(), "{most} over {window:?}: {error}");
    assert!(Quota::try_new(algorithm, most + 1, window).is_err(), "{most} is the largest: {error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_largest_limit_is_the_one_that_the_error_names(
        algorithm in algorithms(), limit in limits(), window in windows(),
    ) {
        let shortest = Duration::from_secs(if algorithm == Algorithm::Concurrency { 2 } else { 0 });
        let window = window.max(shortest);
        if let Err(error) = Quota::try_new(algorithm, limit, window) {
            follow(&error.to_string(), algorithm, window);
        }
    }
}

#[track_caller]
fn says(quota: Result<Quota, Error>, expected: &str) {
    assert_eq!(quota.expect_err("it is too large").to_string(), expected);
}

#[test]
fn the_error_names_the_largest_limit_of_each_algorithm() {
    let minute = Duration::from_secs(60);
    let over = |algorithm, limit, window| Quota::try_new(algorithm, limit, window);
    says(
        over(Algorithm::SlidingLog, 20_000, minute),
        "limit 20000 is too large for a sliding_log over 60s: give at most 10000",
    );
    says(
        over(Algorithm::SlidingLog, 2 * MILLION, minute),
        "limit 2000000 is too large for a sliding_log over 60s: give at most 10000",
    );
    says(
        Quota::try_long_sliding_log(40 * MILLION, minute),
        "limit 40000000 is too large for a sliding_log over 60s: give at most 1000000",
    );
    says(
        over(Algorithm::SlidingWindow, 1 << 48, minute),
        "limit 281474976710656 is too large for a sliding_window over 60s: give at most 140737488355327",
    );
    says(
        over(Algorithm::TokenBucket, 60 * MILLION * MILLION, minute),
        "limit 60000000000000 is too large for a token_bucket over 60s: give at most 1000000000000",
    );
    says(
        over(Algorithm::FixedWindow, 1 << 50, minute),
        "limit 1125899906842624 is too large for a fixed_window over 60s: give at most 562949953421311",
    );
}
