//! Bans after failed requests.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::task::yield_now;
use tollgate::body::ResponseBody;
use tollgate::policy::Count;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{self, Text, now, request, responding};
use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

/// A ban after so many wrong passwords, for ten minutes.
fn ban(after: u32) -> Ban {
    Ban::new(after, MINUTE, 10 * MINUTE)
}

fn wrong() -> Count {
    Count::statuses([StatusCode::UNAUTHORIZED])
}

fn policy(quota: Quota) -> Policy {
    Policy::new("login", quota).key(key::peer_ip())
}

fn login() -> Policy {
    policy(Quota::per_minute(1_000)).ban_failures(ban(3), wrong())
}

fn layer(policy: Policy) -> RateLimitLayer {
    rig::layer([policy]).expose_decisions()
}

/// The response of a login that finds this.
async fn log_in_as(layer: &RateLimitLayer, status: u16, request: Request<String>) -> Response<ResponseBody<Text>> {
    let found = move |_| Response::builder().status(status).body(Text::default()).expect("a response");
    layer.layer(responding(found)).oneshot(request).await.expect("it does not fail")
}

async fn log_in(layer: &RateLimitLayer, status: u16) -> Response<ResponseBody<Text>> {
    log_in_as(layer, status, request()).await
}

/// Sends logins that find this, and are all admitted.
async fn admits(layer: &RateLimitLayer, statuses: &[u16]) {
    for status in statuses {
        assert_eq!(log_in(layer, *status).await.status(), *status, "of {statuses:?}");
    }
}

async fn is_banned(layer: &RateLimitLayer) -> bool {
    let response = log_in(layer, 200).await;
    let is_banned = response.extensions().get::<Decision>().is_some_and(Decision::is_banned);
    assert_eq!(response.status() == 429, is_banned);
    is_banned
}

#[tokio::test]
async fn a_right_password_comes_too_late_after_too_many_wrong_ones() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), login()).expose_decisions();
    admits(&layer, &[401, 401, 401]).await;
    assert!(is_banned(&layer).await);
    clock.advance(10 * MINUTE);
    admits(&layer, &[200]).await;
}

#[tokio::test]
async fn whoever_does_not_fail_is_not_banned() {
    let other_statuses = layer(login());
    admits(&other_statuses, &[200, 404, 500, 503].repeat(5)).await;
    assert!(!is_banned(&other_statuses).await);

    // Refusals are none of its failures.
    let strict = layer(policy(Quota::fixed_window(2, MINUTE)).ban_failures(ban(3), Count::failures()));
    for request in 0..20 {
        let response = log_in(&strict, 200).await;
        let decision = response.extensions().get::<Decision>().expect("it is exposed");
        assert_eq!((response.status() == 200, decision.is_banned()), (request < 2, false));
    }

    // Clients that disconnect.
    let left = layer(login());
    let never = service_fn(|_: Request<String>| pending::<Result<Response<Text>, Infallible>>());
    for _ in 0..9 {
        assert!(left.layer(never).oneshot(request()).now_or_never().is_none());
    }
    assert!(!is_banned(&left).await);

    let without_address = layer(login());
    for _ in 0..9 {
        assert_eq!(log_in_as(&without_address, 401, Request::new(String::new())).await.status(), 401);
    }

    let at_once = layer(login());
    let all = join_all((0..100).map(|_| log_in(&at_once, 200))).await;
    assert!(all.iter().all(|response| response.status() == 200));
    join_all((0..3).map(|_| log_in(&at_once, 401))).await;
    assert!(is_banned(&at_once).await, "and failures at once count each");
}

#[tokio::test]
async fn failures_count_though_they_are_refunded_or_not_advertised_and_by_the_policies_in_force() {
    let refunding = policy(Quota::fixed_window(5, MINUTE)).count(Count::failures());
    let refunding = layer(refunding.ban_failures(ban(4), Count::failures()));
    admits(&refunding, &[200; 20]).await;
    admits(&refunding, &[401; 4]).await;
    assert!(is_banned(&refunding).await);

    let hidden = layer(login().unadvertised());
    admits(&hidden, &[401; 3]).await;
    assert_eq!(log_in(&hidden, 200).await.status(), 429);

    let stricter = layer(login());
    admits(&stricter, &[401; 2]).await;
    let strict = policy(Quota::per_minute(1_000)).ban_failures(ban(2), wrong());
    stricter.clone().live().replace_policies([strict]).expect("it is supported");
    admits(&stricter, &[401]).await;
    assert!(is_banned(&stricter).await);
}

/// What the layer answers to a log-in whose account only the handler knows, which finds this for those it lets in.
async fn check_and_log_in(layer: &RateLimitLayer, account: &'static str, status: u16) -> u16 {
    let account_of = Policy::new("account", Quota::per_minute(1_000)).ban_failures(ban(3), wrong());
    let service = service_fn(move |request: Request<String>| {
        let account_of = account_of.clone();
        async move {
            let limits = request.extensions().get::<RateLimitHandle>().expect("the layer is around").clone();
            let decision = limits.check(&account_of, &Key::new("account", account)).await.expect("memory decides");
            let status = if decision.is_allowed() { status } else { 429 };
            Ok::<_, Infallible>(Response::builder().status(status).body(Text::default()).expect("a response"))
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
async fn guesses_at_once_are_no_more_than_a_quota_that_counts_them_admits_and_then_banned() {
    let policy = policy(Quota::sliding_log(5, 10 * MINUTE)).count(wrong());
    let layer = layer(policy.ban_failures(Ban::new(5, 10 * MINUTE, 30 * MINUTE), wrong()));
    let service = service_fn(|_: Request<String>| async {
        yield_now().await;
        Ok::<_, Infallible>(Response::builder().status(401).body(Text::default()).expect("a response"))
    });
    let all = join_all((0..30).map(|_| layer.layer(service).oneshot(request()))).await;
    let statuses = all.into_iter().map(|response| response.expect("it does not fail").status().as_u16());
    assert_eq!(statuses.filter(|status| *status == 401).count(), 5);
    assert!(is_banned(&layer).await);
}

#[test]
fn a_grpc_call_fails_by_its_trailers() {
    let layer = layer(policy(Quota::per_minute(1_000)).ban_failures(ban(2), Count::failures()));
    for (status, is_banned) in [("0", false), ("0", false), ("16", false), ("0", false), ("16", false), ("0", true)] {
        let service = responding(move |_| {
            let name = "grpc-status".parse().expect("a name");
            let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static(status))]);
            let body = Text::default().with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
            Response::builder().header("content-type", "application/grpc").body(body).expect("a response")
        });
        let response = rig::send(&layer.layer(service), request());
        assert_eq!(response.extensions().get().map(Decision::is_banned), Some(is_banned));
        now(response.into_body().collect());
    }
}
