//! Tiers, reserves, shadow mode and replaced policies of layers of bandwidth.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::{Layer, ServiceExt};

use super::rig::{body, once, pattern, serve};
use crate::support::time::memory;

const HOUR: Quota = Quota::fixed_window(1_000, Duration::from_secs(3_600));

#[tokio::test(start_paused = true)]
async fn a_tier_that_has_no_portions_leaves_a_policy_its_own_quota() {
    for tier in [Quota::concurrency(5), Quota::leaky_bucket(5, Duration::from_secs(1))] {
        for over in [OnLimit::Abort, OnLimit::Throttle] {
            let policy = Policy::new("bytes", HOUR).tier(move |_| Some(tier));
            let limits = RateLimitLayer::new(memory(&ManualClock::paused()), policy);
            let service = BandwidthLayer::responses(limits, over).layer(serve(once(body([pattern(5_000)], false))));
            let response = service.oneshot(Request::new(String::new())).await.expect("a response");
            let read = tokio::time::timeout(Duration::from_secs(60), response.into_body().collect()).await;
            assert!(!matches!(read, Ok(Ok(_))), "5000 bytes passed with a quota of 1000 an hour: {tier}, {over:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_left_for_critical_requests() {
    let policy =
        Policy::new("bytes", HOUR).reserve(0.5, |parts: &http::request::Parts| parts.headers.contains_key("vip"));
    let limits = RateLimitLayer::new(memory(&ManualClock::paused()), policy);
    let layer = BandwidthLayer::responses(limits, OnLimit::Abort);
    let send = async |vip: bool| {
        let mut request = Request::new(String::new());
        if vip {
            request.headers_mut().insert("vip", http::HeaderValue::from_static("1"));
        }
        let response =
            layer.layer(serve(once(body([pattern(500)], false)))).oneshot(request).await.expect("a response");
        (response.status().as_u16(), response.into_body().collect().await.map(|body| body.to_bytes().len()).ok())
    };
    assert_eq!(send(false).await, (200, Some(500)));
    assert_eq!(send(false).await.0, 429);
    assert_eq!(send(true).await, (200, Some(500)));
    assert_eq!(send(true).await.0, 429);
}

#[tokio::test(start_paused = true)]
async fn policies_that_are_replaced_while_a_body_waits() {
    let clock = ManualClock::paused();
    let of = |quota| Policy::new("bytes", quota);
    let limits = RateLimitLayer::new(memory(&clock), of(HOUR));
    let layer = BandwidthLayer::responses(limits, OnLimit::Throttle);
    let service = layer.layer(serve(once(body([pattern(5_000)], false))));
    let response = service.oneshot(Request::new(String::new())).await.expect("a response");
    let reading = tokio::spawn(response.into_body().collect());
    tokio::time::sleep(Duration::from_secs(1)).await;
    layer.limits().replace_policies([of(Quota::fixed_window(10_000, Duration::from_secs(3_600)))]).expect("valid");
    let read = tokio::time::timeout(Duration::from_secs(10), reading).await;
    assert!(read.is_ok(), "a larger quota is followed within a few seconds");
}

#[tokio::test(start_paused = true)]
async fn a_leaky_tier_leaves_a_policy_its_own_quota() {
    let tier = Quota::leaky_bucket(5, Duration::from_secs(1));
    let policy = Policy::new("bytes", HOUR).tier(move |_| Some(tier));
    let limits = RateLimitLayer::new(memory(&ManualClock::paused()), policy);
    let service = BandwidthLayer::responses(limits, OnLimit::Abort).layer(serve(once(body([pattern(5_000)], false))));
    let response = service.oneshot(Request::new(String::new())).await.expect("a response");
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_policy_in_shadow_mode_counts_what_passes() {
    let rig = super::rig::Rig::new([Policy::new("bytes", HOUR).shadow()], OnLimit::Abort);
    let read = rig.send(body([pattern(10)], false)).await.into_body().collect().await.expect("it is in shadow mode");
    assert_eq!(read.to_bytes().len(), 10);
    assert_eq!(super::rig::left(&rig, "bytes", HOUR).await, 990);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_the_reserve_of_a_share_is_left_for_critical_requests() {
    let is_vip = |parts: &http::request::Parts| parts.headers.contains_key("vip");
    let policy = Policy::new("bytes", HOUR).reserve(0.5, is_vip);
    let store = tollgate::test_util::FailingStore::new(memory(&ManualClock::paused()));
    store.fail();
    let limits = RateLimitLayer::new(store, policy).instances(std::num::NonZeroU32::new(2).expect("2"));
    let layer = BandwidthLayer::responses(limits, OnLimit::Abort);
    let chunks = (0..100).map(|_| pattern(10));
    let service = layer.layer(serve(once(body(chunks, false))));
    let response = service.oneshot(Request::new(String::new())).await.expect("a response");
    assert_eq!(response.status(), 200);
    let (mut passed, mut body) = (0, Box::pin(response.into_body()));
    while let Some(Ok(frame)) = body.frame().await {
        passed += frame.into_data().expect("data").len();
    }
    assert!(passed <= 250, "{passed} bytes passed: the share is 500, half of which is the reserve");
}

#[test]
fn a_policy_of_a_layer_of_bandwidth_is_checked_again_when_it_comes_back() {
    let limits = RateLimitLayer::new(memory(&ManualClock::new()), Policy::new("bytes", HOUR));
    let layer = BandwidthLayer::responses(limits, OnLimit::Abort);
    let policy = || layer.limits().find_policy("bytes").expect("it is there");
    assert!(layer.limits().replace_policies([policy().metered()]).is_err(), "bytes are not metered");
    assert!(layer.limits().replace_policies([policy().cost(7)]).is_err(), "bytes have no cost");
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_a_layer_of_bandwidth_limits_requests_where_it_is_given_to_another_layer() {
    let quota = Quota::fixed_window(1, Duration::from_secs(3_600));
    let limits = RateLimitLayer::new(memory(&ManualClock::paused()), Policy::new("bytes", quota));
    let bytes =
        BandwidthLayer::responses(limits, OnLimit::Throttle).limits().find_policy("bytes").expect("it is there");
    let Ok(layer) = RateLimitLayer::try_new(memory(&ManualClock::paused()), bytes) else { return };
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let service = layer.layer(serve(once(body([], false))));
        statuses.push(service.oneshot(Request::new(String::new())).await.expect("a response").status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 429], "an error, or a limit");
}
