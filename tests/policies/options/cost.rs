//! What a request takes: by its head, by what it really cost, and by the last word of its handler.

use http::{Request, Response};
use tollgate::response::ActualCost;
use tollgate::store::Change;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, Policy, Quota, RateLimitLayer};
use tollgate_test::RecordingStore;

use crate::rig::{HOUR, Rig, S, Service, Text, and, each, get, handle, line, over, send, settled, statuses, with};
use crate::support::time::{at, memory};

const BUCKET: Quota = Quota::token_bucket(10, HOUR);

/// The number in a header of a request.
fn number(request: &Request<Text>, name: &str) -> Option<u64> {
    request.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// A service that says what the request really cost, if it is told, and charges and refunds.
fn metering(layer: &RateLimitLayer) -> Service {
    over(layer, async |request| {
        let mut response = Response::new(Text::default());
        if let Some(units) = number(&request, "x-real") {
            response.extensions_mut().insert(ActualCost(units));
        }
        handle(&request).charge(number(&request, "x-charge").unwrap_or_default());
        handle(&request).refund(number(&request, "x-refund").unwrap_or_default());
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
    for quota in each(10) {
        let policy = Policy::new("priced", quota).cost_by(|parts| {
            parts.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1)
        });
        let service = Rig::new().service([policy]);
        for (cost, status, left) in
            [(11, 429, 10), (u64::MAX, 429, 10), (3, 200, 7), (0, 200, 7), (7, 200, 0), (0, 200, 0), (1, 429, 0)]
        {
            let response = send(&service, with("x-cost", &cost.to_string()));
            assert_eq!(response.status(), status, "{quota}, {cost}");
            assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{quota}, {cost}");
            let waits = status == 429 && cost == 1;
            assert_eq!(!line(&response, "retry-after").is_empty(), waits, "{quota}, {cost}");
        }
    }
}

#[test]
fn the_real_cost_charges_or_refunds_the_difference_and_shows() {
    for quota in each(10) {
        let rig = Rig::new();
        let service = metering(&rig.layer([metered(quota).cost(4)]));
        for (request, left) in [
            (really(0), 10),
            (really(4), 6),
            (really(1), 5),
            (with("x-refund", "3"), 4),
            (with("x-refund", "100"), 4),
            (with("x-charge", "0"), 0),
        ] {
            let what = format!("{quota}, {:?}", request.headers());
            assert_eq!(line(&send(&service, request), "x-ratelimit-remaining"), left.to_string(), "{what}");
            assert_eq!(rig.left_of_all("metered", quota), left, "{what}");
        }
        assert_eq!(statuses(&service, [really(0)]), [429], "the estimate does not fit");
    }
}

#[test]
fn a_real_cost_above_the_limit_is_charged_and_the_next_request_waits_for_it() {
    // 20 units are held at most: 11 of them have to return.
    for (units, wait) in [(12, 1_080), (21, 3_960), (u64::MAX, 3_960)] {
        let rig = Rig::new();
        let service = metering(&rig.layer([metered(BUCKET)]));
        rig.clock.set(at(0));
        assert_eq!(statuses(&service, [really(units)]), [200]);
        assert_eq!(line(&send(&service, really(units)), "retry-after"), wait.to_string(), "{units}");
        rig.clock.set(at(wait * S - 1_000));
        assert_eq!(statuses(&service, [really(units)]), [429], "{units}");
        rig.clock.set(at(wait * S));
        assert_eq!(statuses(&service, [really(units)]), [200], "{units}");
    }
}

#[test]
fn charges_whose_replies_are_lost_are_not_made_again() {
    let failing = FailingStore::new(memory(&ManualClock::new()));
    let store = RecordingStore::new(failing.clone());
    let layer = RateLimitLayer::new(store.clone(), metered(BUCKET));
    let service = over(&layer, move |request| {
        let failing = failing.clone();
        async move {
            failing.fail_with(|| Error::timeout("no reply"));
            for units in [3, 2] {
                handle(&request).charge(units);
                assert!(handle(&request).flush().await.is_err_and(|error| error.is_timeout()));
            }
            failing.work();
            handle(&request).charge(1);
            handle(&request).flush().await.expect("the store works");
            Response::new(Text::default())
        }
    });
    let _ = send(&service, get());
    assert_eq!(settled(&store), [3, 2, 1].map(Change::Charge));
}

#[test]
fn a_refund_after_a_bounded_charge_gave_back_what_others_had_taken() {
    let service = metering(&Rig::new().layer([metered(BUCKET)]));
    assert_eq!(statuses(&service, [(); 5].map(|()| get())), [200; 5]);
    let all = u64::MAX.to_string();
    let response = send(&service, and(with("x-charge", &all), "x-refund", &all));
    assert_eq!(line(&response, "x-ratelimit-remaining"), "5");
    assert_eq!(line(&send(&service, get()), "x-ratelimit-remaining"), "4");
}
