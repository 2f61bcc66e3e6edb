//! Tiers, reserves, failures of the store, replaced policies and other layers around layers of bandwidth.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tokio::time::{sleep, timeout};
use tollgate::test_util::FailingStore;
use tollgate::{OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, LimitedBody, OnLimit};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{HOUR, Rig, body, bytes, pattern, read, send, serve};
use crate::audit::memory;

/// The half is reserved for those with a header.
fn for_vips(quota: Quota) -> Policy {
    bytes(quota).reserve(0.5, |parts: &http::request::Parts| parts.headers.contains_key("vip"))
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_has_no_portions_leaves_a_policy_its_own_quota() {
    for tier in [Quota::concurrency(5), Quota::leaky_bucket(5, Duration::from_secs(1))] {
        for over in [OnLimit::Abort, OnLimit::Throttle] {
            let rig = Rig::new([bytes(HOUR).tier(move |_| Some(tier))], over);
            let response = rig.send(body([pattern(5_000)], false)).await;
            let read = timeout(Duration::from_secs(60), read(response)).await;
            assert!(!matches!(read, Ok(Ok(_))), "5000 bytes passed with a quota of 1000 an hour: {tier}, {over:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_left_for_critical_requests() {
    let rig = Rig::new([for_vips(HOUR)], OnLimit::Abort);
    for (is_vip, status) in [(false, 200), (false, 429), (true, 200), (true, 429)] {
        let mut request = Request::new(String::new());
        if is_vip {
            request.headers_mut().insert("vip", HeaderValue::from_static("1"));
        }
        let response = send(&rig.layer, request, body([pattern(500)], false)).await;
        assert_eq!(response.status(), status, "vip: {is_vip}");
        assert!(status == 429 || read(response).await == Ok(500));
    }
    let large = Rig::new([bytes(Quota::per_second(40_000)).reserve(0.8, |_| false)], OnLimit::Abort);
    for _ in 0..5 {
        let response = large.send(body([pattern(1_000)], false)).await;
        assert_eq!(read(response).await, Ok(1_000), "a large reserve refuses nobody while enough is left");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_the_rule_of_the_layer_decides_and_a_share_has_its_reserve() {
    // A local store cuts.
    let rules = [(OnFailure::Deny, 503, false), (OnFailure::Allow, 200, true), (OnFailure::Fallback, 200, false)];
    for (rule, status, is_whole) in rules {
        let store = FailingStore::new(memory());
        store.fail();
        let limits = RateLimitLayer::new(store, for_vips(HOUR)).on_failure(rule);
        let limits = limits.instances(NonZeroU32::new(2).expect("2"));
        let layer = BandwidthLayer::responses(limits, OnLimit::Abort);
        let chunks = (0..100).map(|_| pattern(10));
        let response = send(&layer, Request::new(String::new()), body(chunks, false)).await;
        assert_eq!(response.status(), status, "{rule:?}");
        if status != 200 {
            continue;
        }
        let (mut passed, mut body) = (0, Box::pin(response.into_body()));
        while let Some(Ok(frame)) = body.frame().await {
            passed += frame.into_data().expect("data").len();
        }
        let is_right = if is_whole { passed == 1_000 } else { (1..=250).contains(&passed) };
        assert!(is_right, "{rule:?}: {passed} bytes passed: the share is 500, half of which is the reserve");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_that_are_replaced_hold_for_a_body_that_waits() {
    let rig = Rig::new([bytes(HOUR)], OnLimit::Throttle);
    let reading = tokio::spawn(read(rig.send(body([pattern(5_000)], false)).await));
    sleep(Duration::from_secs(1)).await;
    let larger = Quota::fixed_window(10_000, Duration::from_secs(3_600));
    rig.layer.limits().replace_policies([bytes(larger)]).expect("valid");
    let read = timeout(Duration::from_secs(10), reading).await;
    assert!(read.is_ok(), "a larger quota is followed within a few seconds");
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_a_layer_of_bandwidth_limits_requests_where_it_is_given_to_another_layer() {
    let rig = Rig::new([bytes(Quota::fixed_window(1, Duration::from_secs(3_600)))], OnLimit::Throttle);
    let bytes = rig.layer.limits().find_policy("bytes").expect("it is there");
    let Ok(layer) = RateLimitLayer::try_new(memory(), bytes) else { return };
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = layer.layer(serve(body([], false))).oneshot(Request::new(String::new())).await;
        statuses.push(response.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429], "an error, or a limit");
}

#[tokio::test(start_paused = true)]
async fn handlers_find_the_handle_of_the_layer_outside() {
    let outer = RateLimitLayer::new(memory(), Policy::new("requests", Quota::per_hour(10)));
    let rig = Rig::new([bytes(HOUR)], OnLimit::Throttle);
    let inner = service_fn(async |request: Request<LimitedBody<String>>| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("of the layer outside");
        assert_eq!(handle.decision().outcomes()[0].policy(), "requests");
        Ok::<_, Infallible>(Response::new(body([], false)))
    });
    outer.layer(rig.layer.layer(inner)).oneshot(Request::new(String::new())).await.expect("a response");
}
