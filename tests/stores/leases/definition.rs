//! What the definitions of the algorithms admit.

use std::time::Duration;

use tollgate::Quota;
use tollgate::policy::Algorithm;

use super::sim::Admitted;

/// Checks that every interval of length d admits at most what the definition does in d and `slack`,
/// and `extra` units more.
#[track_caller]
pub(crate) fn assert_admits(quota: &Quota, admitted: &Admitted, slack: Duration, extra: u64) {
    let (window, slack) = (micros(quota.window()), micros(slack));
    match quota.algorithm() {
        Algorithm::TokenBucket => bucket(quota, admitted, window, slack, extra),
        Algorithm::FixedWindow => windows(quota, admitted, window, extra),
        Algorithm::SlidingWindow => sliding(quota, admitted, window, extra),
        Algorithm::SlidingLog => log(quota, admitted, window, slack, extra),
        other => panic!("{other:?} is not leased"),
    }
}

/// In d: burst + limit * d / window.
#[track_caller]
fn bucket(quota: &Quota, admitted: &Admitted, window: u64, slack: u64, extra: u64) {
    let (limit, window) = (i128::from(quota.limit()), i128::from(window));
    let most = (i128::from(quota.capacity() + extra)) * window + limit * i128::from(slack);
    let (mut taken, mut least) = (0, i128::MAX);
    for &(at, units) in admitted {
        // Of all intervals that end here, one begins where this was least.
        least = least.min(taken - limit * i128::from(at));
        taken += i128::from(units) * window;
        let level = taken - limit * i128::from(at) - least;
        assert!(level <= most, "{} units too many by {at}", (level - most) / window);
    }
}

/// In each aligned window: the limit.
#[track_caller]
fn windows(quota: &Quota, admitted: &Admitted, window: u64, extra: u64) {
    let (mut start, mut taken) = (0, 0);
    for &(at, units) in admitted {
        taken = if at - at % window == start { taken + units } else { units };
        start = at - at % window;
        assert!(taken <= quota.limit() + extra, "{taken} in the window of {start}");
    }
}

/// At each admission: the window's units, and those of the one before by the share still covered.
#[track_caller]
fn sliding(quota: &Quota, admitted: &Admitted, window: u64, extra: u64) {
    let (mut start, mut taken, mut before) = (0, 0, 0);
    for &(at, units) in admitted {
        let current = at - at % window;
        if current != start {
            before = if current == start + window { taken } else { 0 };
            (start, taken) = (current, 0);
        }
        taken += units;
        let counted = before * (window - at % window) / window + taken;
        assert!(counted <= quota.limit() + extra, "{counted} at {at}");
    }
}

/// In d: the limit for every window that is begun.
#[track_caller]
fn log(quota: &Quota, admitted: &Admitted, window: u64, slack: u64, extra: u64) {
    for begun in 1..=60_000_000 / window {
        let length = begun * window - slack;
        let (mut first, mut taken) = (0, 0);
        for &(at, units) in admitted {
            taken += units;
            while admitted[first].0 + length <= at {
                taken -= admitted[first].1;
                first += 1;
            }
            assert!(taken <= begun * quota.limit() + extra, "{taken} in {length} us up to {at}");
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("tests are short")
}
