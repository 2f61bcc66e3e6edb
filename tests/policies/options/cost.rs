//! What a request takes: by its head, by what it really cost, and by the last word of its handler.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tollgate::response::ActualCost;
use tollgate::store::Change;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tollgate_test::{Recorded, RecordingStore};
use tower::util::BoxCloneService;
use tower::{Layer, service_fn};

use super::rig::{HOUR, Rig, Service, Text, get, line, now, on_each_store, over, send, statuses, with};
use crate::support::time::{at, memory};

const TEN: Quota = Quota::fixed_window(10, HOUR);
const BUCKET: Quota = Quota::token_bucket(10, HOUR);
const QUOTAS: [Quota; 4] = [TEN, BUCKET, Quota::sliding_window(10, HOUR), Quota::sliding_log(10, HOUR)];

fn number(request: &Request<Text>, name: &str) -> Option<u64> {
    request.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// A policy whose cost is in a header.
fn priced(quota: Quota) -> Policy {
    Policy::new("priced", quota).cost_by(|parts| {
        let cost = parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok());
        cost.unwrap_or(1)
    })
}

fn costs(units: u64) -> Request<Text> {
    with("x-cost", &units.to_string())
}

/// A service that says what the request really cost, if it is told.
fn metering(layer: &RateLimitLayer) -> Service {
    over(layer, |request| {
        let mut response = Response::new(Text::default());
        if let Some(units) = number(&request, "x-real") {
            response.extensions_mut().insert(ActualCost(units));
        }
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives a handle");
        if let Some(units) = number(&request, "x-charge") {
            handle.charge(units);
        }
        if let Some(units) = number(&request, "x-refund") {
            handle.refund(units);
        }
        response
    })
}

fn metered(quota: Quota) -> Policy {
    Policy::new("metered", quota).metered()
}

fn really(units: u64) -> Request<Text> {
    with("x-real", &units.to_string())
}

#[test]
fn a_closure_says_what_a_request_costs() {
    let service = Rig::memory().service([priced(TEN)]);
    for (cost, status, left) in [(3, 200, 7), (0, 200, 7), (7, 200, 0), (0, 200, 0), (1, 429, 0)] {
        let response = now(&service, costs(cost));
        assert_eq!(response.status(), status, "{cost}");
        assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{cost}");
    }
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_for_good_and_takes_nothing() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let service = rig.service([priced(quota)]);
            for cost in [11, 1 << 52, u64::MAX] {
                let response = send(&service, costs(cost)).await;
                assert_eq!(response.status(), 429, "{}: {quota}", rig.name);
                assert_eq!(line(&response, "retry-after"), "", "{}: {quota}", rig.name);
                assert_eq!(line(&response, "ratelimit"), r#""priced";r=10"#, "{}: {quota}", rig.name);
            }
            assert_eq!(statuses(&service, [costs(10)]).await, [200], "{}: {quota}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn the_real_cost_charges_or_refunds_the_difference_and_shows() {
    on_each_store(async |rig| {
        let service = metering(&rig.layer([metered(BUCKET).cost(4)]));
        for (request, left) in [(really(4), 6), (really(1), 5), (get(), 1), (really(2), 0)] {
            let response = send(&service, request).await;
            if left == 0 {
                assert_eq!(response.status(), 429, "{}: the estimate does not fit", rig.name);
                continue;
            }
            assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{}", rig.name);
            assert_eq!(rig.left_of_all("metered", BUCKET).await, left, "{}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_real_cost_of_zero_gives_all_back() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let service = metering(&rig.layer([metered(quota).cost(10)]));
            for _ in 0..3 {
                let response = send(&service, really(0)).await;
                assert_eq!(response.status(), 200, "{}: {quota}", rig.name);
                assert_eq!(line(&response, "x-ratelimit-remaining"), "10", "{}: {quota}", rig.name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_real_cost_above_the_limit_is_charged_and_the_next_request_waits_for_it() {
    on_each_store(async |rig| {
        let service = metering(&rig.layer([metered(BUCKET)]));
        let response = send(&service, really(12)).await;
        assert_eq!((response.status().as_u16(), line(&response, "x-ratelimit-remaining")), (200, "0"), "{}", rig.name);
        let refused = send(&service, get()).await;
        assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, "1080"), "{}", rig.name);
        rig.clock.set(at(1_080 * 1_000_000 - 1_000));
        assert_eq!(statuses(&service, [get()]).await, [429], "{}", rig.name);
        rig.clock.set(at(1_080 * 1_000_000));
        assert_eq!(statuses(&service, [get()]).await, [200], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn an_absurd_real_cost_is_a_debt_of_one_more_capacity_at_most() {
    on_each_store(async |rig| {
        for units in [21, 1 << 53, u64::MAX] {
            rig.clock.set(at(0));
            let policy = Policy::new("metered", BUCKET).metered().key(key::header("x-real"));
            let service = metering(&rig.layer([policy]));
            let request = || really(units);
            assert_eq!(line(&send(&service, request()).await, "x-ratelimit-remaining"), "0", "{}", rig.name);
            // 20 units are held at most: 11 of them have to return.
            let refused = send(&service, request()).await;
            assert_eq!(line(&refused, "retry-after"), "3960", "{}: {units}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_policy_that_is_not_metered_is_not_touched_by_real_costs() {
    on_each_store(async |rig| {
        let service = metering(&rig.layer([Policy::new("plain", TEN).cost(2), metered(BUCKET).cost(2)]));
        for (request, plain, metered) in [(really(0), 8, 10), (really(5), 6, 5), (with("x-charge", "2"), 4, 1)] {
            let response = send(&service, request).await;
            let mut left = [("plain", plain), ("metered", metered)];
            left.sort_by_key(|(_, left)| *left);
            let shown: Vec<&str> = line(&response, "ratelimit").split(", ").collect();
            for (member, (name, left)) in shown.iter().zip(left) {
                assert!(member.starts_with(&format!("\"{name}\";r={left};")), "{}: {shown:?}", rig.name);
            }
        }
        assert_eq!(rig.left_of_all("plain", TEN).await, 4, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_handle_charges_and_refunds_and_the_headers_show_it() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let service = metering(&rig.layer([metered(quota)]));
            for (request, left) in [
                (with("x-charge", "3"), 6),
                (with("x-refund", "1"), 6),
                (with("x-refund", "100"), 6),
                (get(), 5),
                (with("x-charge", "0"), 4),
            ] {
                let response = send(&service, request).await;
                assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{}: {quota}", rig.name);
                assert_eq!(rig.left_of_all("metered", quota).await, left, "{}: {quota}", rig.name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_gives_back_what_was_taken_at_each_time() {
    on_each_store(async |rig| {
        for quota in QUOTAS {
            let clock = rig.clock.clone();
            let service = awaiting(&rig.layer([metered(quota).cost(2)]), move |handle| {
                let clock = clock.clone();
                async move {
                    for _ in 0..2 {
                        clock.advance(Duration::from_secs(1));
                        handle.charge(3);
                        handle.flush().await.expect("the store answers");
                    }
                    handle.refund(100);
                }
            });
            let response = send(&service, get()).await;
            assert_eq!(line(&response, "x-ratelimit-remaining"), "10", "{}: {quota}", rig.name);
            assert_eq!(rig.left_of_all("metered", quota).await, 10, "{}: {quota}", rig.name);
        }
    })
    .await;
}

/// A layer over a handler that waits.
fn awaiting<F>(layer: &RateLimitLayer, handler: impl Fn(RateLimitHandle) -> F + Clone + Send + 'static) -> Service
where
    F: Future<Output = ()> + Send,
{
    BoxCloneService::new(layer.layer(service_fn(move |request: Request<Text>| {
        let serving = handler(request.extensions().get::<RateLimitHandle>().expect("the layer gives a handle").clone());
        async move {
            serving.await;
            Ok::<_, Infallible>(Response::new(Text::default()))
        }
    })))
}

#[tokio::test]
async fn charges_whose_replies_are_lost_are_not_made_again() {
    let failing = FailingStore::new(memory(&ManualClock::new()));
    let store = RecordingStore::new(failing.clone());
    let service = awaiting(&RateLimitLayer::new(store.clone(), metered(BUCKET)), move |handle| {
        let failing = failing.clone();
        async move {
            failing.fail_with(|| Error::timeout("no reply"));
            for units in [3, 2] {
                handle.charge(units);
                assert!(handle.flush().await.is_err_and(|error| error.is_timeout()));
            }
            failing.work();
            handle.charge(1);
            handle.flush().await.expect("the store works");
            handle.flush().await.expect("nothing has changed");
        }
    });
    let _ = send(&service, get()).await;
    let mut charges = Vec::new();
    for call in store.recorded() {
        if let Recorded::Settle(_, changes) = call {
            charges.extend(changes.iter().map(|settlement| settlement.change));
        }
    }
    assert_eq!(charges, [3, 2, 1].map(Change::Charge));
}

#[test]
fn a_refund_after_a_bounded_charge_gave_back_what_others_had_taken() {
    let rig = Rig::memory();
    let service = over(&rig.layer([metered(BUCKET)]), |request| {
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives a handle");
        if request.headers().contains_key("x-all") {
            handle.charge(u64::MAX);
            handle.refund(u64::MAX);
        }
        Response::new(Text::default())
    });
    for _ in 0..5 {
        let _ = now(&service, get());
    }
    let response = now(&service, with("x-all", "1"));
    assert_eq!(line(&response, "x-ratelimit-remaining"), "5");
    assert_eq!(line(&now(&service, get()), "x-ratelimit-remaining"), "4");
}
