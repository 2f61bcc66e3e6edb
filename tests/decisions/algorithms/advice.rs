//! What the error of a limit that is too large advises, taken at its word.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Algorithm, Error, Quota};

const MILLION: u64 = 1_000_000;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let kinds: Vec<Algorithm> = Algorithm::ALL.iter().map(|(_, algorithm)| *algorithm).collect();
    proptest::sample::select(kinds)
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

/// The number at the start of a text.
fn number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{text:?} starts with a number"))
}

/// The quota that a file would make of a name.
fn named(name: &str, limit: u64, window: Duration) -> Result<Quota, Error> {
    if name == "long_sliding_log" {
        return Quota::try_long_sliding_log(limit, window);
    }
    let known = Algorithm::ALL.iter().find(|(known, _)| *known == name);
    Quota::try_new(known.unwrap_or_else(|| panic!("{name} is an algorithm")).1, limit, window)
}

fn period(text: &str) -> Duration {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let micros = match unit {
        "s" => MILLION,
        "ms" => 1_000,
        "us" => 1,
        _ => panic!("{text} is a period"),
    };
    Duration::from_micros(number(text) * micros)
}

/// Does what an error says, in each of the ways it says.
fn follow(error: &str, algorithm: Algorithm, limit: u64, window: Duration) {
    let (_, advice) = error.split_once("give at most ").unwrap_or_else(|| panic!("{error} names the largest"));
    let most = number(advice);
    assert!(Quota::try_new(algorithm, most, window).is_ok(), "{most} over {window:?}: {error}");
    assert!(Quota::try_new(algorithm, most + 1, window).is_err(), "{most} is the largest: {error}");
    if algorithm == Algorithm::Concurrency {
        assert_eq!(advice, most.to_string(), "nothing else limits what is served at once: {error}");
        return;
    }
    if let Some((_, long)) = advice.split_once(" (") {
        let most = number(long);
        assert!(Quota::try_long_sliding_log(most, window).is_ok() && long.contains("as a long_sliding_log"), "{error}");
        assert!(Quota::try_long_sliding_log(most + 1, window).is_err(), "{error}");
    }
    if let Some((_, name)) = advice.split_once("or make it a ") {
        assert!(named(name, limit, window).is_ok(), "{error}");
    } else if let Some((_, rate)) = advice.split_once("or about the same rate over a shorter window: ") {
        let (shorter, over) = (number(rate), period(rate.split_once(" over ").expect("a window").1));
        assert!(over < window && Quota::try_new(algorithm, shorter, over).is_ok(), "{error}");
        let share = u128::from(limit) * over.as_nanos() / window.as_nanos();
        assert_eq!(u128::from(shorter), share, "{error}");
    } else {
        assert!(advice.contains("as no algorithm counts further") || advice.contains("as nothing counts"), "{error}");
        let others = Algorithm::ALL.iter().filter(|(_, other)| *other == Algorithm::FixedWindow);
        let fits = others.clone().any(|(_, other)| Quota::try_new(*other, limit, window).is_ok());
        assert!(!fits || advice.contains("as nothing counts"), "a fixed window takes it: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn whoever_follows_the_advice_has_a_quota_that_builds(
        algorithm in algorithms(), limit in limits(), window in windows(),
    ) {
        let shortest = Duration::from_secs(if algorithm == Algorithm::Concurrency { 2 } else { 0 });
        let window = window.max(shortest);
        if let Err(error) = Quota::try_new(algorithm, limit, window) {
            follow(&error.to_string(), algorithm, limit, window);
        }
    }
}

#[track_caller]
fn says(quota: Result<Quota, Error>, expected: &str) {
    assert_eq!(quota.expect_err("it is too large").to_string(), expected);
}

#[test]
fn the_advice_is_one_that_helps_each_algorithm() {
    let minute = Duration::from_secs(60);
    let over = |algorithm, limit, window| Quota::try_new(algorithm, limit, window);
    says(
        over(Algorithm::SlidingLog, 20_000, minute),
        "limit 20000 is too large for a sliding_log over 60s: give at most 10000, or make it a long_sliding_log",
    );
    says(
        over(Algorithm::SlidingLog, 2 * MILLION, minute),
        "limit 2000000 is too large for a sliding_log over 60s: give at most 10000 (1000000 as a long_sliding_log), or \
         make it a sliding_window",
    );
    says(
        Quota::try_long_sliding_log(40 * MILLION, minute),
        "limit 40000000 is too large for a sliding_log over 60s: give at most 1000000, or make it a sliding_window",
    );
    says(
        over(Algorithm::SlidingWindow, 1 << 48, minute),
        "limit 281474976710656 is too large for a sliding_window over 60s: give at most 140737488355327, or make it a \
         fixed_window",
    );
    says(
        over(Algorithm::TokenBucket, 60 * MILLION * MILLION, minute),
        "limit 60000000000000 is too large for a token_bucket over 60s: give at most 1000000000000, or about the same \
         rate over a shorter window: 1000000000000 over 1s",
    );
    says(
        over(Algorithm::FixedWindow, 1 << 50, minute),
        "limit 1125899906842624 is too large for a fixed_window over 60s: give at most 562949953421311, as no algorithm \
         counts further over this window",
    );
}
