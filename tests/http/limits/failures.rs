//! Bans after failed requests.
#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{join_all, pending};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::task::yield_now;
use tollgate::body::ResponseBody;
use tollgate::policy::Count;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

/// After three wrong passwords banned for ten minutes.
fn login() -> Policy {
    Policy::new("login", Quota::per_minute(1_000))
        .key(key::peer_ip())
        .ban_failures(Ban::new(3, MINUTE, 10 * MINUTE), Count::statuses([StatusCode::UNAUTHORIZED]))
}

fn request() -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
    request
}

/// The response of a login that finds this.
async fn log_in(layer: &RateLimitLayer, status: u16) -> Response<ResponseBody<Full<Bytes>>> {
    let service = service_fn(move |_: Request<Full<Bytes>>| async move {
        Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).expect("a response"))
    });
    layer.layer(service).oneshot(request()).await.expect("it does not fail")
}

fn is_banned(response: &Response<ResponseBody<Full<Bytes>>>) -> bool {
    response.extensions().get::<Decision>().is_some_and(Decision::is_banned)
}

#[tokio::test]
async fn a_right_password_comes_too_late_after_too_many_wrong_ones() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), login()).expose_decisions();
    for _ in 0..3 {
        assert_eq!(log_in(&layer, 401).await.status(), 401);
    }
    let refused = log_in(&layer, 200).await;
    assert_eq!((refused.status().as_u16(), is_banned(&refused)), (429, true));
    clock.advance(10 * MINUTE);
    assert_eq!(log_in(&layer, 200).await.status(), 200);
}

/// What the layer answers to a log-in whose account only the handler knows, which finds this for those it lets in.
async fn check_and_log_in(layer: &RateLimitLayer, account: &'static str, status: u16) -> u16 {
    let account_of = Policy::new("account", Quota::per_minute(1_000))
        .ban_failures(Ban::new(3, MINUTE, 10 * MINUTE), Count::statuses([StatusCode::UNAUTHORIZED]));
    let service = service_fn(move |request: Request<Full<Bytes>>| {
        let account_of = account_of.clone();
        async move {
            let limits = request.extensions().get::<RateLimitHandle>().expect("the layer is around").clone();
            let decision = limits.check(&account_of, &Key::new("account", account)).await.expect("memory decides");
            let status = if decision.is_allowed() { status } else { 429 };
            Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).expect("a response"))
        }
    });
    layer.layer(service).oneshot(request()).await.expect("it does not fail").status().as_u16()
}

#[tokio::test]
async fn a_policy_that_a_handler_checks_bans_by_the_response_too() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), Policy::new("all", Quota::per_minute(1_000)).key(key::global()));
    for status in [401, 200, 401, 500, 401] {
        assert_eq!(check_and_log_in(&layer, "ada", status).await, status);
    }
    assert_eq!(check_and_log_in(&layer, "ada", 200).await, 429, "it is banned");
    assert_eq!(check_and_log_in(&layer, "bob", 200).await, 200);
    clock.advance(10 * MINUTE);
    assert_eq!(check_and_log_in(&layer, "ada", 200).await, 200);
}

#[tokio::test]
async fn other_responses_and_refusals_are_no_failures() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login()).expose_decisions();
    for status in [200, 404, 500, 503].repeat(5) {
        assert_eq!(log_in(&layer, status).await.status(), status);
    }
    let strict = Policy::new("login", Quota::fixed_window(2, MINUTE)).key(key::peer_ip());
    let strict = strict.ban_failures(Ban::new(3, MINUTE, 10 * MINUTE), Count::failures());
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), strict).expose_decisions();
    for request in 0..20 {
        let response = log_in(&layer, 200).await;
        assert_eq!((response.status() == 200, is_banned(&response)), (request < 2, false));
    }
}

#[tokio::test]
async fn many_right_passwords_at_once_ban_nobody_and_failures_count_each() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login()).expose_decisions();
    let all = join_all((0..100).map(|_| log_in(&layer, 200))).await;
    assert!(all.iter().all(|response| response.status() == 200));
    assert!(join_all((0..3).map(|_| log_in(&layer, 401))).await.iter().all(|response| response.status() == 401));
    assert!(is_banned(&log_in(&layer, 200).await));
}

#[tokio::test]
async fn guesses_at_once_are_no_more_than_a_quota_that_counts_them_admits_and_then_banned() {
    let wrong = Count::statuses([StatusCode::UNAUTHORIZED]);
    let policy = Policy::new("login", Quota::sliding_log(5, 10 * MINUTE)).key(key::peer_ip()).count(wrong.clone());
    let policy = policy.ban_failures(Ban::new(5, 10 * MINUTE, 30 * MINUTE), wrong);
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy).expose_decisions();
    let service = service_fn(|_: Request<Full<Bytes>>| async {
        yield_now().await;
        Ok::<_, Infallible>(Response::builder().status(401).body(Full::<Bytes>::default()).expect("a response"))
    });
    let all = join_all((0..30).map(|_| layer.layer(service).oneshot(request()))).await;
    let statuses = all.into_iter().map(|response| response.expect("it does not fail").status().as_u16());
    assert_eq!(statuses.filter(|status| *status == 401).count(), 5);
    assert!(is_banned(&log_in(&layer, 200).await));
}

#[tokio::test]
async fn a_request_whose_client_disconnects_is_no_failure() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login()).expose_decisions();
    for _ in 0..9 {
        let service = service_fn(|_: Request<Full<Bytes>>| pending::<Result<Response<Full<Bytes>>, Infallible>>());
        assert!(layer.layer(service).oneshot(request()).now_or_never().is_none());
    }
    assert_eq!(log_in(&layer, 200).await.status(), 200);
}

#[tokio::test]
async fn failures_without_an_address_ban_nobody() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login()).expose_decisions();
    let service = service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, Infallible>(Response::builder().status(401).body(Full::<Bytes>::default()).expect("a response"))
    });
    for _ in 0..9 {
        let response = layer.layer(service).oneshot(Request::new(Full::default())).await.expect("it does not fail");
        assert_eq!(response.status(), 401);
    }
}

#[tokio::test]
async fn failures_of_policies_that_count_failures_are_refunded_as_before() {
    let policy = Policy::new("login", Quota::fixed_window(5, MINUTE)).key(key::peer_ip()).count(Count::failures());
    let policy = policy.ban_failures(Ban::new(4, MINUTE, 10 * MINUTE), Count::failures());
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy).expose_decisions();
    for _ in 0..20 {
        assert_eq!(log_in(&layer, 200).await.status(), 200);
    }
    for _ in 0..4 {
        assert_eq!(log_in(&layer, 401).await.status(), 401);
    }
    assert!(is_banned(&log_in(&layer, 200).await));
}

/// A gRPC call whose status is in its trailers; returns whether it was refused.
async fn call(layer: &RateLimitLayer, status: &'static str) -> bool {
    let service = service_fn(move |_: Request<Full<Bytes>>| async move {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        let body = Full::<Bytes>::default().with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
        let response = Response::builder().header("content-type", "application/grpc").body(body);
        Ok::<_, Infallible>(response.expect("a response"))
    });
    let response = layer.layer(service).oneshot(request()).await.expect("it does not fail");
    let refused = response.extensions().get::<Decision>().is_some_and(Decision::is_banned);
    response.into_body().collect().await.expect("a body");
    refused
}

#[tokio::test]
async fn a_grpc_call_fails_by_its_trailers() {
    let policy = Policy::new("login", Quota::per_minute(1_000)).key(key::peer_ip());
    let policy = policy.ban_failures(Ban::new(2, MINUTE, 10 * MINUTE), Count::failures());
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), policy).expose_decisions();
    for status in ["0", "0", "16", "0", "16"] {
        assert!(!call(&layer, status).await);
    }
    assert!(call(&layer, "0").await);
}

#[tokio::test]
async fn failures_of_a_policy_that_clients_are_not_told_of_count_too() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login().unadvertised()).expose_decisions();
    for _ in 0..3 {
        assert_eq!(log_in(&layer, 401).await.status(), 401);
    }
    assert_eq!(log_in(&layer, 200).await.status(), 429);
}

#[tokio::test]
async fn a_ban_that_is_made_stricter_counts_the_next_failure() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login()).expose_decisions();
    for _ in 0..2 {
        assert_eq!(log_in(&layer, 401).await.status(), 401);
    }
    let strict = Ban::new(2, MINUTE, 10 * MINUTE);
    let strict = Policy::new("login", Quota::per_minute(1_000))
        .key(key::peer_ip())
        .ban_failures(strict, Count::statuses([StatusCode::UNAUTHORIZED]));
    layer.clone().live().replace_policies([strict]).expect("it is supported");
    assert_eq!(log_in(&layer, 401).await.status(), 401);
    assert!(is_banned(&log_in(&layer, 200).await));
}
