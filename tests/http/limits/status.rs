//! The service that tells clients what they have left, over axum.
#![cfg(feature = "axum")]

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use futures::FutureExt;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tollgate::policy::AccessList;
use tollgate::test_util::ManualClock;
use tollgate::{LiveLayer, OnFailure, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::ServiceExt;

use crate::support::doubles::unavailable;
use crate::support::time::memory;

const HOUR: Duration = Duration::from_secs(3_600);

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    let store = memory(&ManualClock::new());
    RateLimitLayer::composite(store).policies(policies)
}

/// An app whose `/` is limited, and whose `/rate_limit` tells.
fn app(layer: &RateLimitLayer) -> Router {
    live_app(&layer.clone().live())
}

fn live_app(layer: &LiveLayer) -> Router {
    let limited = Router::new().route("/", get(|| async {})).layer(layer.clone());
    limited.route_service("/rate_limit", layer.status_service_for(|_| true))
}

fn request(method: Method, uri: &str, user: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri).header("x-user", user);
    let peer = ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711)));
    request.extension(peer).body(Body::empty()).expect("a request")
}

#[track_caller]
fn send(app: &Router, request: Request<Body>) -> Response<Body> {
    app.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response")
}

#[track_caller]
fn text(response: Response<Body>) -> String {
    let collected = response.into_body().collect().now_or_never().expect("a body at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}

/// What a user is told; `R` stands for a reset that is this far away.
#[track_caller]
fn told(app: &Router, user: &str, expected: &str, resets: &[Duration]) {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let filled = |now: Duration| {
        let seconds = |after: &Duration| (now + *after).as_nanos().div_ceil(1_000_000_000).to_string();
        resets.iter().fold(expected.to_owned(), |text, after| text.replacen('R', &seconds(after), 1))
    };
    let before = filled(now());
    let text = text(send(app, request(Method::GET, "/rate_limit", user)));
    assert!(text == before || text == filled(now()), "{text} is not {before}");
}

fn user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
}

#[test]
fn what_is_counted_besides_requests_has_a_name_and_slots_have_no_reset() {
    let slots = Policy::new("streams", Quota::concurrency(1)).key(key::header("x-user"));
    let bytes = Policy::new("downloads", Quota::per_second(1_000)).key(key::header("x-user"));
    let streams = r#""streams":{"limit":1,"used":0,"remaining":1,"unit":"concurrent-requests"}"#;
    let downloads = r#""downloads":{"limit":1000,"used":0,"remaining":1000,"reset":R,"unit":"content-bytes"}"#;
    let expected = |resource| format!(r#"{{"resources":{{{resource}}}}}"#);
    told(&app(&layer([slots])), "ada", &expected(streams), &[]);
    let bandwidth = BandwidthLayer::responses(layer([bytes]), OnLimit::Throttle);
    told(&live_app(bandwidth.limits()), "ada", &expected(downloads), &[Duration::ZERO]);
}

#[test]
fn what_is_kept_for_others_is_not_left() {
    let app = app(&layer([user(Quota::fixed_window(10, HOUR)).reserve(0.4, |_| false)]));
    assert_eq!(send(&app, request(Method::GET, "/", "ada")).status(), 200);
    told(&app, "ada", r#"{"resources":{"user":{"limit":10,"used":5,"remaining":5,"reset":R}}}"#, &[HOUR]);
}

#[test]
fn each_client_is_told_what_it_has_left() {
    let bucket = Quota::token_bucket(10, HOUR);
    let app = app(&layer([user(bucket).cost(2)]).ip(Quota::fixed_window(3, HOUR)));
    let fresh = r#"{"resources":{"user":{"limit":10,"used":0,"remaining":10,"reset":R},"ip":{"limit":3,"used":0,"remaining":3,"reset":R}}}"#;
    told(&app, "ada", fresh, &[Duration::ZERO; 2]);
    assert_eq!(send(&app, request(Method::GET, "/", "ada")).status(), 200);
    let after = r#"{"resources":{"user":{"limit":10,"used":2,"remaining":8,"reset":R},"ip":{"limit":3,"used":1,"remaining":2,"reset":R}}}"#;
    told(&app, "ada", after, &[HOUR / 5, HOUR]);
    told(
        &app,
        "bob",
        &after.replace(r#""used":2,"remaining":8"#, r#""used":0,"remaining":10"#),
        &[Duration::ZERO, HOUR],
    );
}

#[test]
fn telling_takes_nothing_even_when_nothing_is_left() {
    let app = app(&layer([user(Quota::fixed_window(1, HOUR))]));
    let one = |used: u64| {
        format!(r#"{{"resources":{{"user":{{"limit":1,"used":{used},"remaining":{},"reset":R}}}}}}"#, 1 - used)
    };
    (0..10).for_each(|_| told(&app, "ada", &one(0), &[Duration::ZERO]));
    assert_eq!(send(&app, request(Method::GET, "/", "ada")).status(), 200);
    (0..10).for_each(|_| told(&app, "ada", &one(1), &[HOUR]));
    assert_eq!(send(&app, request(Method::GET, "/", "ada")).status(), 429);
}

#[test]
fn the_answer_is_json_of_the_moment() {
    let response = send(&app(&layer([])), request(Method::GET, "/rate_limit", "ada"));
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(text(response), r#"{"resources":{}}"#);
}

#[test]
fn policies_that_clients_are_not_told_of_are_left_out() {
    let quota = Quota::fixed_window(1, HOUR);
    let hidden = [user(quota).unadvertised(), Policy::new("tried", quota).shadow()];
    let absent = Policy::new("absent", quota).key(key::cookie("session"));
    let listed = Policy::new("listed", quota).key(key::header("x-user")).allow(AccessList::default().key("ada"));
    let app = app(&layer(hidden).policy(absent).policy(listed));
    told(&app, "ada", r#"{"resources":{}}"#, &[]);
    told(&app, "bob", r#"{"resources":{"listed":{"limit":1,"used":0,"remaining":1,"reset":R}}}"#, &[Duration::ZERO]);
}

#[test]
fn policies_for_other_methods_and_routes_are_told_too() {
    let quota = Quota::fixed_window(1, HOUR);
    let scoped = user(quota).methods([Method::POST]).routes(["/"]);
    let app = app(&layer([scoped]));
    told(&app, "ada", r#"{"resources":{"user":{"limit":1,"used":0,"remaining":1,"reset":R}}}"#, &[Duration::ZERO]);
}

#[test]
fn replaced_policies_are_told_as_they_are() {
    let layer = layer([user(Quota::fixed_window(1, HOUR))]);
    let app = app(&layer);
    layer.clone().live().replace_policies([user(Quota::fixed_window(7, HOUR))]).unwrap();
    told(&app, "ada", r#"{"resources":{"user":{"limit":7,"used":0,"remaining":7,"reset":R}}}"#, &[Duration::ZERO]);
}

#[test]
fn a_store_that_cannot_say_is_503_where_failures_deny() {
    let layer = RateLimitLayer::new(unavailable(), user(Quota::per_hour(1))).on_failure(OnFailure::Deny);
    let response = send(&app(&layer), request(Method::GET, "/rate_limit", "ada"));
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(text(response).contains("temporary-reduced-capacity"));
}

#[test]
fn where_a_fallback_counts_it_is_the_fallback_that_tells() {
    let layer = RateLimitLayer::new(unavailable(), user(Quota::token_bucket(2, HOUR)));
    let app = app(&layer);
    assert_eq!(send(&app, request(Method::GET, "/", "ada")).status(), 200);
    assert!(text(send(&app, request(Method::GET, "/rate_limit", "ada"))).contains(r#""used":1,"remaining":1"#));
}
