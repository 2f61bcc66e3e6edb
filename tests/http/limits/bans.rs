//! Bans on the whole layer: requests that the policy does not apply to.
#![cfg(feature = "axum")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use http::{Method, Request};
use tollgate::key::Lookup;
use tollgate::policy::TierLookup;
use tollgate::store::DenyCache;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{RecordingStore, TestResponse, send};

use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

/// Logins: one a minute, and after two refusals a ban on all routes.
fn login() -> Policy {
    Policy::new("login", Quota::fixed_window(1, MINUTE))
        .key(key::peer_ip())
        .methods([Method::POST])
        .ban(Ban::new(2, MINUTE, 10 * MINUTE).whole_layer())
}

fn others() -> Policy {
    Policy::new("all", Quota::fixed_window(100, MINUTE)).key(key::peer_ip())
}

fn request(method: Method) -> Request<String> {
    let mut request = Request::new(String::new());
    *request.method_mut() = method;
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
    request
}

async fn one(layer: &RateLimitLayer, method: Method) -> TestResponse {
    send(layer, 1, |_| request(method.clone())).await.remove(0)
}

async fn ban(layer: &RateLimitLayer) {
    for _ in 0..3 {
        let _ = one(layer, Method::POST).await;
    }
}

fn is_banned(sent: &TestResponse) -> bool {
    String::from_utf8_lossy(sent.body()).contains("#abnormal-usage-detected")
}

fn headers(sent: &TestResponse) -> Vec<String> {
    let limits = sent.headers().iter().filter(|(name, _)| name.as_str().contains("ratelimit"));
    let mut all: Vec<String> =
        limits.map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII"))).collect();
    all.retain(|line| !line.starts_with("x-ratelimit-reset"));
    all
}

#[tokio::test]
async fn a_banned_client_is_refused_where_the_policy_does_not_apply() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::composite(memory(&clock)).policy(login()).policy(others());
    assert!(one(&layer, Method::GET).await.is_admitted());
    ban(&layer).await;
    for method in [Method::GET, Method::DELETE, Method::POST] {
        let refused = one(&layer, method).await;
        assert!(is_banned(&refused));
        assert_eq!(refused.headers()["retry-after"], "600");
        assert_eq!(refused.headers()["ratelimit"], "\"login\";r=0;t=600");
    }
    clock.advance(10 * MINUTE);
    assert!(one(&layer, Method::GET).await.is_admitted());
}

#[tokio::test]
async fn requests_that_the_policy_does_not_apply_to_are_no_strikes_and_headers_do_not_name_it() {
    let clock = ManualClock::new();
    let with = RateLimitLayer::composite(memory(&clock)).policy(login()).policy(others());
    let without = RateLimitLayer::composite(memory(&clock)).policy(others());
    for _ in 0..120 {
        let (with, without) = (one(&with, Method::GET).await, one(&without, Method::GET).await);
        assert_eq!((with.status(), headers(&with)), (without.status(), headers(&without)));
        assert!(!is_banned(&with));
    }
    let only = RateLimitLayer::new(memory(&clock), login());
    let sent = one(&only, Method::GET).await;
    assert!(sent.is_admitted());
    assert_eq!(headers(&sent), [""; 0]);
}

#[tokio::test]
async fn nothing_is_owed_to_a_policy_that_only_looked() {
    let layer = RateLimitLayer::composite(memory(&ManualClock::new())).policy(login().metered()).policy(others());
    for _ in 0..9 {
        let sent = send(&layer, 1, |_| request(Method::GET)).await.remove(0);
        assert!(sent.is_admitted());
    }
    assert!(one(&layer, Method::POST).await.is_admitted(), "its unit is there");
}

#[tokio::test]
async fn preflights_and_allowed_clients_are_not_refused() {
    let layer = RateLimitLayer::new(memory(&ManualClock::new()), login());
    ban(&layer).await;
    let preflight = |_| {
        let mut request = request(Method::OPTIONS);
        request.headers_mut().insert("origin", "https://a.example".parse().unwrap());
        request.headers_mut().insert("access-control-request-method", "GET".parse().unwrap());
        request
    };
    assert!(send(&layer, 1, preflight).await[0].is_admitted());
    assert!(is_banned(&one(&layer, Method::OPTIONS).await));
    let allow = tollgate::policy::AccessList::parse(["10.0.0.0/8"]).expect("a network");
    layer.clone().live().replace_policies([login().allow(allow)]).expect("it is supported");
    assert!(one(&layer, Method::GET).await.is_admitted());
}

#[tokio::test]
async fn without_the_whole_layer_other_routes_are_served_and_make_no_call() {
    let store = std::sync::Arc::new(RecordingStore::new(MemoryStore::new()));
    let policy = Policy::new("login", Quota::fixed_window(1, MINUTE)).key(key::peer_ip()).methods([Method::POST]);
    let layer = RateLimitLayer::new(std::sync::Arc::clone(&store), policy.ban(Ban::new(2, MINUTE, 10 * MINUTE)));
    ban(&layer).await;
    store.take();
    let sent = one(&layer, Method::GET).await;
    assert!(sent.is_admitted() && sent.decision().is_none_or(|decision| decision.outcomes().is_empty()));
}

#[tokio::test]
async fn a_flood_of_a_banned_client_is_refused_from_the_cache_on_all_routes() {
    let clock = ManualClock::new();
    let cache = DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let layer = RateLimitLayer::composite(cache.clone()).policy(login()).policy(others());
    ban(&layer).await;
    let before = cache.denied_from_cache();
    for _ in 0..100 {
        assert!(is_banned(&one(&layer, Method::GET).await));
    }
    assert_eq!(cache.denied_from_cache() - before, 99);
}

#[tokio::test]
async fn so_it_is_where_each_request_has_another_key_to_look_up() {
    let clock = ManualClock::new();
    let cache = DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
    let by_key = Policy::new("key", Quota::fixed_window(100, MINUTE)).key(key::header("x-key")).tier_lookup(tiers);
    let layer = RateLimitLayer::composite(cache.clone()).policy(login()).policy(by_key);
    let sent = send(&layer, 103, |place| {
        let mut request = request(Method::POST);
        request.headers_mut().insert("x-key", place.into());
        request
    });
    let sent = sent.await;
    assert_eq!(sent.iter().map(is_banned).collect::<Vec<_>>(), [&[false; 2][..], &[true; 101]].concat());
    assert_eq!(cache.denied_from_cache(), 100);
    clock.advance(10 * MINUTE);
    assert!(one(&layer, Method::POST).await.is_admitted());
}

/// A banned client that alternates a route of the policy and another one.
#[tokio::test]
async fn a_flood_of_a_banned_client_that_alternates_routes_is_refused_from_the_cache() {
    let clock = ManualClock::new();
    let cache = DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let layer = RateLimitLayer::composite(cache.clone()).policy(login()).policy(others());
    ban(&layer).await;
    let before = cache.denied_from_cache();
    for request in 0..100 {
        let method = if request % 2 == 0 { Method::GET } else { Method::POST };
        assert!(is_banned(&one(&layer, method).await));
    }
    let cached = cache.denied_from_cache() - before;
    assert!(cached >= 97, "{cached} of 100 were refused from the cache");
}

#[test]
fn a_ban_by_failures_that_refusals_extend_is_an_error() {
    let policy = Policy::new("login", Quota::fixed_window(100, MINUTE))
        .key(key::peer_ip())
        .ban_failures(Ban::new(1, MINUTE, 10 * MINUTE).extending(), tollgate::policy::Count::all());
    let error = RateLimitLayer::try_new(memory(&ManualClock::new()), policy).expect_err("it has no effect").to_string();
    assert!(error.ends_with("a ban by failures is not extended: leave out extending"), "{error}");
}
