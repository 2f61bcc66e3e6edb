//! The header fields of calendar windows, which differ in length.

use std::sync::Arc;
use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::{DenyCache, LeaseStore, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tower::Layer;

use crate::rig::{hello, line, request, send};
use crate::support::time::memory;

const DAY: u64 = 86_400;

/// When months from the 31st begin in Berlin, in Unix time.
const JANUARY_31: u64 = 1_706_655_600;
const FEBRUARY_29: u64 = 1_709_161_200;
const MARCH_31: u64 = 1_711_839_600;

/// The day on which clocks go back.
const OCTOBER_27: u64 = 1_729_980_000;

fn billing(limit: u64) -> Quota {
    let month = Calendar::monthly("Europe/Berlin").map(|month| month.anchor(31));
    Quota::calendar_window(limit, month.expect("the system has time zones"))
}

fn daily(limit: u64) -> Quota {
    Quota::calendar_window(limit, Calendar::daily("Europe/Berlin").expect("the system has time zones"))
}

/// The policy, what is left, the reset and the wait.
fn fields(layer: &RateLimitLayer) -> [String; 4] {
    let response = send(&layer.layer(hello()), request());
    let names = ["ratelimit-policy", "ratelimit", "x-ratelimit-reset", "retry-after"];
    names.map(|name| line(response.headers(), name).to_owned())
}

fn layer(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(store).policies(policies).headers(RateLimitHeaders::both().reset_in_seconds())
}

fn at(clock: &ManualClock, seconds: u64) {
    clock.set(Duration::from_secs(seconds));
}

#[test]
fn each_month_is_advertised_with_its_own_length() {
    let clock = ManualClock::new();
    let layer = layer(memory(&clock), [Policy::new("billing", billing(2))]);
    for (start, length) in [(JANUARY_31, 29 * DAY), (FEBRUARY_29, 31 * DAY), (MARCH_31, 30 * DAY - 3_600)] {
        at(&clock, start);
        let policy = format!("\"billing\";q=2;w={length}");
        let reset = length.to_string();
        let left = |r: u64, t: u64| format!("\"billing\";r={r};t={t}");
        assert_eq!(fields(&layer), [&*policy, &left(1, length), &reset, ""]);
        at(&clock, start + length - 60);
        assert_eq!(fields(&layer), [&*policy, &left(0, 60), "60", ""]);
        assert_eq!(fields(&layer), [&*policy, &left(0, 60), "60", "60"]);
        clock.set(Duration::from_millis((start + length) * 1_000 - 1));
        assert_eq!(fields(&layer), [&*policy, &left(0, 1), "1", "1"]);
    }
}

#[test]
fn the_day_on_which_clocks_change_is_advertised_as_long_as_it_is_beside_other_policies() {
    let clock = ManualClock::new();
    let layer = layer(memory(&clock), [Policy::new("minute", Quota::per_minute(60)), Policy::new("day", daily(9))]);
    for (start, hours) in [(MARCH_31 - DAY, 24), (MARCH_31, 23), (OCTOBER_27, 25), (OCTOBER_27 + 25 * 3_600, 24)] {
        at(&clock, start);
        let length = hours * 3_600;
        let policies = format!("\"minute\";q=60;w=60, \"day\";q=9;w={length}");
        let left = format!("\"day\";r=8;t={length}, \"minute\";r=59;t=59");
        assert_eq!(fields(&layer)[..2], [policies, left]);
    }
}

#[test]
fn stores_around_a_store_advertise_the_window_that_counts() {
    let clock = ManualClock::new();
    let lengths = |store: Box<dyn Store>, times: usize| {
        let layer = layer(store, [Policy::new("billing", billing(100))]);
        at(&clock, JANUARY_31);
        for _ in 0..times {
            let found = fields(&layer);
            assert_eq!(found[0], format!("\"billing\";q=100;w={}", 29 * DAY), "{found:?}");
        }
    };
    // After the first 100 it refuses, from its cache.
    let denies = DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let denies = Arc::new(denies);
    lengths(Box::new(Arc::clone(&denies)), 110);
    assert!(denies.denied_from_cache() > 5);
    let leases = LeaseStore::builder(memory(&clock)).clock(clock.clone()).build();
    lengths(Box::new(leases.clone()), 110);
    assert!(leases.counts().spent > 20, "{:?}", leases.counts());
}
