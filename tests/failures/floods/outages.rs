//! Stores and tallies that fail and return, again and again, and services that are overloaded or never ready.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::time::{advance, sleep, timeout};
use tollgate::store::BreakerState;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, key};
use tollgate_shed::{BackPressureLayer, Class, FleetShedLayer, WorkerShedLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::{Cause, FLOOD, Row, assert_bounded, run};
use crate::ratios::{Switch, TICK, counter, load};
use crate::rig::{MANY, Mood, Moody, ask, layer, ms};

const SECOND: Duration = Duration::from_secs(1);

pub(super) const ROWS: [Row; 10] = [
    ("never_ready", Cause::Flood(|| run(services_that_are_never_ready()))),
    ("outage_exceeds", Cause::Flood(|| run(outages()))),
    ("shedding", Cause::Flood(|| run(overload()))),
    ("shedding_ended", Cause::Flood(|| run(overload()))),
    ("store_available", Cause::Flood(|| run(outages()))),
    ("store_failed", Cause::Flood(|| run(single_failures()))),
    ("store_unavailable", Cause::Flood(|| run(outages()))),
    ("tally_available", Cause::Flood(|| run(outages_of_a_tally()))),
    ("tally_unavailable", Cause::Flood(|| run(outages_of_a_tally()))),
    ("utilization_unknown", Cause::Flood(|| run(unknown_utilizations()))),
];

#[test]
fn a_flood_of_outages_is_few_lines() {
    assert_bounded(&ROWS);
}

#[test]
fn an_outage_whose_beginning_is_not_logged_has_no_line_for_its_end() {
    use crate::support::log::Log;

    let log = Log::default();
    let _noting = log.note(tracing::Level::INFO);
    run(outages());
    let [began, ended] = ["store_unavailable", "store_available"].map(|code| log.count(&format!("code=\"{code}\"")));
    assert_eq!(began, ended, "the last line says how it is: {}", log.text());
}

/// A hundred outages: the breaker opens, and closes once the store is back.
async fn outages() {
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, MANY).on_failure(OnFailure::Allow).allow_for(ms(1));
    for _ in 0..100 {
        store.becomes(Mood::Fails);
        while layer.clone().live().breaker_state() == BreakerState::Closed {
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
    let clock = ManualClock::paused();
    let store = MemoryStore::builder().clock(clock).build();
    let layer = FleetShedLayer::new(store, "flooded", quota, 0.2);
    for _ in 0..3 {
        let mut held = Vec::new();
        for _ in 0..FLOOD {
            let hello =
                service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::from("hello"))) });
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Class::Write);
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
    for _ in 0..FLOOD {
        let hello = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        layer.layer(hello).oneshot(Request::new(Body::empty())).await.expect("a response");
        clock.advance(SECOND);
    }
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
