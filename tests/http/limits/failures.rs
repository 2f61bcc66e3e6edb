//! Bans after failed requests, and on the whole layer: of requests that the policy does not apply to.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::task::yield_now;
use tollgate::policy::{AccessList, Count};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{self, Text, expect, now, request, responding, with};
use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

/// A ban after so many failures, for ten minutes.
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
    rig::layer([policy])
}

/// A response of a log-in.
fn found(status: u16) -> Response<Text> {
    Response::builder().status(status).body(Text::default()).expect("a response")
}

fn log_in_as(layer: &RateLimitLayer, status: u16, request: Request<String>) -> u16 {
    rig::send(&layer.layer(responding(move |_| found(status))), request).status().as_u16()
}

/// Sends log-ins that find this, and are all admitted.
#[track_caller]
fn admits(layer: &RateLimitLayer, statuses: &[u16]) {
    for status in statuses {
        assert_eq!(log_in_as(layer, *status, request()), *status, "of {statuses:?}");
    }
}

fn is_banned(layer: &RateLimitLayer) -> bool {
    let response = rig::send(&layer.clone().expose_decisions().layer(responding(|_| found(200))), request());
    let is_banned = response.extensions().get::<Decision>().is_some_and(Decision::is_banned);
    assert_eq!(response.status() == 429, is_banned);
    is_banned
}

#[test]
fn a_right_password_comes_too_late_after_too_many_wrong_ones() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), login());
    admits(&layer, &[401, 401, 401]);
    assert!(is_banned(&layer));
    clock.advance(10 * MINUTE);
    admits(&layer, &[200]);
}

#[test]
fn whoever_does_not_fail_is_not_banned() {
    let layer = layer(login());
    admits(&layer, &[200, 404, 500, 503].repeat(5));
    // Clients that disconnect.
    let never = service_fn(|_: Request<String>| pending::<Result<Response<Text>, Infallible>>());
    for _ in 0..9 {
        assert!(layer.layer(never).oneshot(request()).now_or_never().is_none());
    }
    assert!(!is_banned(&layer));
    for _ in 0..9 {
        assert_eq!(log_in_as(&layer, 401, Request::new(String::new())), 401, "without an address");
    }
    // Refusals are none of its failures.
    let strict = self::layer(policy(Quota::fixed_window(2, MINUTE)).ban_failures(ban(3), Count::failures()));
    let service = strict.expose_decisions().layer(responding(|_| found(200)));
    for number in 0..20 {
        let response = rig::send(&service, request());
        let is_banned = response.extensions().get().map(Decision::is_banned);
        assert_eq!((response.status() == 200, is_banned), (number < 2, Some(false)));
    }
}

#[test]
fn failures_count_though_they_are_refunded_or_not_advertised_and_by_the_policies_in_force() {
    let refunding = policy(Quota::fixed_window(5, MINUTE)).count(Count::failures());
    let refunding = layer(refunding.ban_failures(ban(4), Count::failures()));
    admits(&refunding, &[200; 20]);
    admits(&refunding, &[401; 4]);
    assert!(is_banned(&refunding));

    let hidden = layer(login().unadvertised());
    admits(&hidden, &[401; 3]);
    assert_eq!(log_in_as(&hidden, 200, request()), 429);

    let stricter = layer(login());
    admits(&stricter, &[401; 2]);
    let strict = policy(Quota::per_minute(1_000)).ban_failures(ban(2), wrong());
    stricter.clone().live().replace_policies([strict]).expect("it is supported");
    admits(&stricter, &[401]);
    assert!(is_banned(&stricter));
}

#[test]
fn a_policy_that_a_handler_checks_bans_by_the_response_too() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), Policy::new("all", Quota::per_minute(1_000)));
    // The response to a log-in whose account only the handler knows, which finds this for those it lets in.
    let log_in = |account: &'static str, status: u16| {
        let service = responding(move |request| {
            let limits = request.extensions().get::<RateLimitHandle>().expect("the layer is around");
            let policy = Policy::new("account", Quota::per_minute(1_000)).ban_failures(ban(3), wrong());
            let decision = now(limits.check(&policy, &Key::new("account", account)));
            found(if decision.is_allowed() { status } else { 429 })
        });
        rig::send(&layer.layer(service), request()).status().as_u16()
    };
    for status in [401, 200, 401, 500, 401] {
        assert_eq!(log_in("ada", status), status);
    }
    assert_eq!([log_in("ada", 200), log_in("bob", 200)], [429, 200]);
    clock.advance(10 * MINUTE);
    assert_eq!(log_in("ada", 200), 200);
}

#[tokio::test]
async fn guesses_at_once_are_no_more_than_a_quota_that_counts_them_admits_and_then_banned() {
    let policy = policy(Quota::sliding_log(5, 10 * MINUTE)).count(wrong());
    let layer = layer(policy.ban_failures(Ban::new(5, 10 * MINUTE, 30 * MINUTE), wrong()));
    let service = service_fn(|_: Request<String>| async {
        yield_now().await;
        Ok::<_, Infallible>(found(401))
    });
    let all = join_all((0..30).map(|_| layer.layer(service).oneshot(request()))).await;
    let statuses = all.into_iter().map(|response| response.expect("it does not fail").status().as_u16());
    assert_eq!(statuses.filter(|status| *status == 401).count(), 5);
    assert!(is_banned(&layer));
}

#[test]
fn a_grpc_call_fails_by_its_trailers() {
    let layer = layer(policy(Quota::per_minute(1_000)).ban_failures(ban(2), Count::failures()));
    for status in ["0", "0", "16", "0", "16"] {
        assert!(!is_banned(&layer));
        let service = responding(move |_| {
            let trailers = (HeaderName::from_static("grpc-status"), HeaderValue::from_static(status));
            let body =
                Text::default().with_trailers(async { Some(Ok::<_, Infallible>(HeaderMap::from_iter([trailers]))) });
            Response::builder().header("content-type", "application/grpc").body(body).expect("a response")
        });
        now(rig::send(&layer.layer(service), request()).into_body().collect());
    }
    assert!(is_banned(&layer));
}

/// Logins: one a minute, and after two refusals a ban.
fn strict(ban: fn(Ban) -> Ban) -> Policy {
    let ban = ban(Ban::new(2, MINUTE, 10 * MINUTE));
    Policy::new("login", Quota::fixed_window(1, MINUTE)).key(key::peer_ip()).methods([Method::POST]).ban(ban)
}

fn others() -> Policy {
    Policy::new("all", Quota::fixed_window(100, MINUTE)).key(key::peer_ip())
}

async fn one(layer: &RateLimitLayer, method: Method) -> TestResponse {
    send(layer, 1, |_| rig::by(method.clone())).await.remove(0)
}

async fn ban_by_refusals(layer: &RateLimitLayer) {
    drop(send(layer, 3, |_| rig::by(Method::POST)).await);
}

#[tokio::test]
async fn a_banned_client_is_refused_where_the_policy_does_not_apply() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::composite(memory(&clock)).policy(strict(Ban::whole_layer)).policy(others());
    assert!(one(&layer, Method::GET).await.is_allowed());
    ban_by_refusals(&layer).await;
    for method in [Method::GET, Method::OPTIONS, Method::POST] {
        let refused = one(&layer, method).await;
        assert!(rig::is_banned(&refused));
        expect(refused.headers(), &[("retry-after", "600"), ("ratelimit", "\"login\";r=0;t=600")]);
    }
    let preflight = |_| {
        let request = with(rig::by(Method::OPTIONS), "origin", "https://a.example");
        with(request, "access-control-request-method", "GET")
    };
    assert!(rig::is_banned(&send(&layer, 1, preflight).await[0]));
    clock.advance(10 * MINUTE);
    assert!(one(&layer, Method::GET).await.is_allowed());
}

#[tokio::test]
async fn requests_that_the_policy_does_not_apply_to_are_no_strikes_owe_it_nothing_and_do_not_name_it() {
    let layer = rig::layer([strict(Ban::whole_layer).metered(), others()]);
    for response in send(&layer, 120, |_| rig::by(Method::GET)).await {
        let names_it = response.headers().values().any(|value| value.as_bytes().starts_with(b"\"login\""));
        assert!(!names_it && !rig::is_banned(&response));
    }
    layer.clone().live().replace_policies([strict(Ban::whole_layer).metered()]).expect("it is supported");
    let response = one(&layer, Method::GET).await;
    assert!(response.is_allowed() && response.headers().is_empty(), "{:?}", response.headers());
    assert!(one(&layer, Method::POST).await.is_allowed(), "its unit is there");
}

#[tokio::test]
async fn allowed_clients_and_where_only_its_own_requests_are_banned_the_others_are_not_refused() {
    let layer = rig::layer([strict(Ban::whole_layer)]);
    ban_by_refusals(&layer).await;
    let allow = AccessList::parse(["10.0.0.0/8"]).expect("a network");
    layer.clone().live().replace_policies([strict(Ban::whole_layer).allow(allow)]).expect("it is supported");
    assert!(one(&layer, Method::GET).await.is_allowed());
    layer.clone().live().replace_policies([strict(|ban| ban)]).expect("it is supported");
    assert!(one(&layer, Method::GET).await.is_allowed());
    assert!(rig::is_banned(&one(&layer, Method::POST).await));
}

#[test]
fn a_ban_by_failures_that_refusals_extend_is_an_error() {
    let policy = others().ban_failures(Ban::new(1, MINUTE, 10 * MINUTE).extending(), Count::all());
    let error = RateLimitLayer::try_new(memory(&ManualClock::new()), policy).expect_err("it has no effect").to_string();
    assert!(error.ends_with("a ban by failures is not extended: remove extending"), "{error}");
}
