//! Stores and tallies that fail and return, again and again, and services that are overloaded or never ready.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tokio::time::{advance, sleep, timeout};
use tollgate::store::BreakerState;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, key};
use tollgate_shed::{BackPressureLayer, Class, FleetShedLayer, WorkerShedLayer};
use tollgate_test::send;
use tower::{Layer, ServiceExt, service_fn};

use super::{FLOOD, Row, assert_bounded, run};
use crate::ratios::{Switch, TICK, counter, load};
use crate::rig::{MANY, Mood, Moody, ask, layer, ms, state};

const SECOND: Duration = Duration::from_secs(1);

pub(super) const ROWS: [Row; 10] = [
    ("never_ready", || run(services_that_are_never_ready())),
    ("outage_exceeds", || run(outages())),
    ("shedding", || run(overload())),
    ("shedding_ended", || run(overload())),
    ("store_available", || run(outages())),
    ("store_failed", || run(single_failures())),
    ("store_unavailable", || run(outages())),
    ("tally_available", || run(outages_of_a_tally())),
    ("tally_unavailable", || run(outages_of_a_tally())),
    ("utilization_unknown", || run(unknown_utilizations())),
];

#[test]
fn a_flood_of_outages_is_few_lines() {
    assert_bounded(&ROWS);
}

/// A hundred outages: the breaker opens, and closes once the store is back.
async fn outages() {
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, MANY).on_failure(OnFailure::Allow).allow_for(ms(1));
    for _ in 0..100 {
        store.becomes(Mood::Fails);
        while state(&layer) == BreakerState::Closed {
            ask(&layer, "ada").await;
        }
        advance(SECOND).await;
        ask(&layer, "ada").await;
        store.becomes(Mood::Decides);
        advance(SECOND).await;
        ask(&layer, "ada").await;
    }
}

/// Failures that open no breaker: one of each four calls.
async fn single_failures() {
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, Quota::per_hour(1_000_000));
    for number in 0..FLOOD {
        store.becomes(if number % 4 == 0 { Mood::Fails } else { Mood::Decides });
        ask(&layer, "ada").await;
    }
}

async fn outages_of_a_tally() {
    let (tally, all) = (Switch::new(), [counter("all", "all")]);
    let store = tally.store();
    load(&store, &all, 50, 3).await;
    for _ in 0..50 {
        for is_off in [true, false] {
            tally.set_off(is_off);
            load(&store, &all, 50, 2).await;
        }
    }
    sleep(TICK).await;
}

/// Three episodes in which all requests but ten are shed.
async fn overload() {
    let quota = Quota::concurrency(10).slot_ttl(Duration::from_secs(3));
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    let layer = FleetShedLayer::new(store, "flooded", quota, 0.2);
    for _ in 0..3 {
        let mut held = Vec::new();
        for _ in 0..FLOOD {
            let request = Request::builder().extension(Class::Write).body(String::new()).expect("a request");
            let hello = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
            let response = layer.layer(hello).oneshot(request).await.expect("a response");
            if response.status() == 200 {
                held.push(response);
            }
        }
        drop(held);
        sleep(61 * SECOND).await;
    }
}

async fn unknown_utilizations() {
    let clock = ManualClock::new();
    let layer = WorkerShedLayer::measured("flooded", || f64::NAN).clock(clock.clone());
    let next = |_| {
        clock.advance(SECOND);
        Request::new(String::new())
    };
    send(&layer, FLOOD, next).await;
}

async fn services_that_are_never_ready() {
    let policy = |quota| Policy::new("flooded", quota).key(key::header("x-job"));
    let limits = RateLimitLayer::new(MemoryStore::new(), policy(MANY));
    let limiter: Limiter = limits.clone().live().limiter();
    let back_pressure = BackPressureLayer::new(limiter, policy(MANY).key_of("mail").expect("a key"));
    limits
        .clone()
        .live()
        .replace_policies([policy(MANY).ban(Ban::new(2, SECOND, SECOND).of_verified_keys())])
        .expect("they are valid");
    let mut service = back_pressure.layer(service_fn(async |_: u32| Ok::<_, Infallible>(())));
    assert!(timeout(2_000 * SECOND, ServiceExt::<u32>::ready(&mut service)).await.is_err());
}
