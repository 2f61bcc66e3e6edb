//! What a request takes: by its head, by what it really cost, and by the last word of its handler.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::response::ActualCost;
use tollgate::store::Change;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tollgate_test::{Recorded, RecordingStore};
use tower::util::BoxCloneService;
use tower::{Layer, service_fn};

use crate::rig::{HOUR, Rig, S, Service, Text, and, get, line, now, on_each_store, over, send, statuses, with};
use crate::support::time::{at, memory};

const TEN: Quota = Quota::fixed_window(10, HOUR);
const BUCKET: Quota = Quota::token_bucket(10, HOUR);
const QUOTAS: [Quota; 4] = [TEN, BUCKET, Quota::sliding_window(10, HOUR), Quota::sliding_log(10, HOUR)];

/// The number in a header of a request.
fn number(request: &Request<Text>, name: &str) -> Option<u64> {
    request.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// A service that says what the request really cost, if it is told, and charges and refunds.
fn metering(layer: &RateLimitLayer) -> Service {
    over(layer, |request| {
        let mut response = Response::new(Text::default());
        if let Some(units) = number(&request, "x-real") {
            response.extensions_mut().insert(ActualCost(units));
        }
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer gives a handle");
        handle.charge(number(&request, "x-charge").unwrap_or_default());
        handle.refund(number(&request, "x-refund").unwrap_or_default());
        response
    })
}

fn metered(quota: Quota) -> Policy {
    Policy::new("metered", quota).metered()
}

fn really(units: u64) -> Request<Text> {
    with("x-real", &units.to_string())
}

#[tokio::test]
async fn a_closure_says_what_a_request_costs() {
    on_each_store(async |rig| {
        for (place, quota) in QUOTAS.into_iter().enumerate() {
            let policy = Policy::new(&format!("priced-{place}"), quota).cost_by(|parts| {
                parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1)
            });
            let service = rig.service([policy]);
            for (cost, status, left) in
                [(11, 429, 10), (u64::MAX, 429, 10), (3, 200, 7), (0, 200, 7), (7, 200, 0), (0, 200, 0), (1, 429, 0)]
            {
                let response = send(&service, with("x-cost", &cost.to_string())).await;
                assert_eq!(response.status(), status, "{}: {quota}, {cost}", rig.name);
                assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{}: {quota}, {cost}", rig.name);
                let waits = status == 429 && cost == 1;
                assert_eq!(!line(&response, "retry-after").is_empty(), waits, "{}: {quota}, {cost}", rig.name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_real_cost_charges_or_refunds_the_difference_and_shows() {
    let handled = |name, units: u64| with(name, &units.to_string());
    on_each_store(async |rig| {
        for (place, quota) in QUOTAS.into_iter().enumerate() {
            let name = format!("metered-{place}");
            let service = metering(&rig.layer([Policy::new(&name, quota).cost(4).metered()]));
            for (request, left) in [
                (really(0), 10),
                (really(4), 6),
                (really(1), 5),
                (handled("x-refund", 3), 4),
                (handled("x-refund", 100), 4),
                (handled("x-charge", 0), 0),
            ] {
                let what = format!("{}: {quota}, {:?}", rig.name, request.headers());
                let response = send(&service, request).await;
                assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{what}");
                assert_eq!(rig.left_of_all(&name, quota).await, left, "{what}");
            }
            assert_eq!(statuses(&service, [really(0)]).await, [429], "{}: the estimate does not fit", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_real_cost_above_the_limit_is_charged_and_the_next_request_waits_for_it() {
    on_each_store(async |rig| {
        let service = metering(&rig.layer([metered(BUCKET).key(key::header("x-real"))]));
        // 20 units are held at most: 11 of them have to return.
        for (units, wait) in [(12, 1_080), (21, 3_960), (1 << 53, 3_960), (u64::MAX, 3_960)] {
            rig.clock.set(at(0));
            let response = send(&service, really(units)).await;
            assert_eq!((response.status().as_u16(), line(&response, "x-ratelimit-remaining")), (200, "0"));
            let refused = send(&service, really(units)).await;
            assert_eq!(refused.status(), 429, "{}: {units}", rig.name);
            assert_eq!(line(&refused, "retry-after"), wait.to_string(), "{}: {units}", rig.name);
            rig.clock.set(at(wait * S - 1_000));
            assert_eq!(statuses(&service, [really(units)]).await, [429], "{}: {units}", rig.name);
            rig.clock.set(at(wait * S));
            assert_eq!(statuses(&service, [really(units)]).await, [200], "{}: {units}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn charges_whose_replies_are_lost_are_not_made_again() {
    let failing = FailingStore::new(memory(&ManualClock::new()));
    let store = RecordingStore::new(failing.clone());
    let inner = service_fn(move |request: Request<Text>| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("the layer gives a handle").clone();
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
            Ok::<_, Infallible>(Response::new(Text::default()))
        }
    });
    let layer = RateLimitLayer::new(store.clone(), metered(BUCKET));
    let _ = send(&BoxCloneService::new(layer.layer(inner)), get()).await;
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
    let service = metering(&Rig::memory().layer([metered(BUCKET)]));
    for _ in 0..5 {
        let _ = now(&service, get());
    }
    let all = u64::MAX.to_string();
    let response = now(&service, and(with("x-charge", &all), "x-refund", &all));
    assert_eq!(line(&response, "x-ratelimit-remaining"), "5");
    assert_eq!(line(&now(&service, get()), "x-ratelimit-remaining"), "4");
}
