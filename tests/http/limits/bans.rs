//! Bans on the whole layer: requests that the policy does not apply to.

use std::convert::Infallible;
use std::time::Duration;

use http::Method;
use tollgate::key::Lookup;
use tollgate::policy::{AccessList, Count, TierLookup};
use tollgate::store::DenyCache;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};

use crate::rig::{by, is_banned, layer, with};
use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

/// Logins: one a minute, and after two refusals a ban.
fn login(ban: fn(Ban) -> Ban) -> Policy {
    Policy::new("login", Quota::fixed_window(1, MINUTE)).key(key::peer_ip()).methods([Method::POST]).ban(ban(Ban::new(
        2,
        MINUTE,
        10 * MINUTE,
    )))
}

fn others() -> Policy {
    Policy::new("all", Quota::fixed_window(100, MINUTE)).key(key::peer_ip())
}

async fn one(layer: &RateLimitLayer, method: Method) -> TestResponse {
    send(layer, 1, |_| by(method.clone())).await.remove(0)
}

async fn ban(layer: &RateLimitLayer) {
    drop(send(layer, 3, |_| by(Method::POST)).await);
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
    let layer = RateLimitLayer::composite(memory(&clock)).policy(login(Ban::whole_layer)).policy(others());
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
async fn requests_that_the_policy_does_not_apply_to_are_no_strikes_owe_it_nothing_and_do_not_name_it() {
    let with = layer([login(Ban::whole_layer).metered(), others()]);
    let without = layer([others()]);
    for _ in 0..120 {
        let (with, without) = (one(&with, Method::GET).await, one(&without, Method::GET).await);
        assert_eq!((with.status(), headers(&with)), (without.status(), headers(&without)));
        assert!(!is_banned(&with));
    }
    let only = layer([login(Ban::whole_layer).metered()]);
    assert_eq!(headers(&one(&only, Method::GET).await), [""; 0]);
    assert!(one(&only, Method::POST).await.is_admitted(), "its unit is there");
}

#[tokio::test]
async fn preflights_allowed_clients_and_where_only_its_own_requests_are_banned_the_others_are_not_refused() {
    let layer = layer([login(Ban::whole_layer)]);
    ban(&layer).await;
    let preflight = |_| {
        let request = with(by(Method::OPTIONS), "origin", "https://a.example");
        with(request, "access-control-request-method", "GET")
    };
    assert!(send(&layer, 1, preflight).await[0].is_admitted());
    assert!(is_banned(&one(&layer, Method::OPTIONS).await));
    let allow = AccessList::parse(["10.0.0.0/8"]).expect("a network");
    layer.clone().live().replace_policies([login(Ban::whole_layer).allow(allow)]).expect("it is supported");
    assert!(one(&layer, Method::GET).await.is_admitted());
    layer.clone().live().replace_policies([login(|ban| ban)]).expect("it is supported");
    let sent = one(&layer, Method::GET).await;
    assert!(sent.is_admitted() && sent.decision().is_none_or(|decision| decision.outcomes().is_empty()));
    assert!(is_banned(&one(&layer, Method::POST).await));
}

#[tokio::test]
async fn a_flood_of_a_banned_client_is_refused_from_the_cache_on_all_routes_and_whatever_is_to_be_looked_up() {
    let clock = ManualClock::new();
    let cached = || DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let cache = cached();
    let layer = RateLimitLayer::composite(cache.clone()).policy(login(Ban::whole_layer)).policy(others());
    ban(&layer).await;
    let before = cache.denied_from_cache();
    for request in 0..100 {
        assert!(is_banned(&one(&layer, [Method::GET, Method::POST][request % 2].clone()).await));
    }
    let count = cache.denied_from_cache() - before;
    assert!(count >= 97, "{count} of 100 were refused from the cache");

    let cache = cached();
    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
    let by_key = Policy::new("key", Quota::fixed_window(100, MINUTE)).key(key::header("x-key")).tier_lookup(tiers);
    let layer = RateLimitLayer::composite(cache.clone()).policy(login(Ban::whole_layer)).policy(by_key);
    let sent = send(&layer, 103, |place| with(by(Method::POST), "x-key", place.to_string())).await;
    assert_eq!(sent.iter().map(is_banned).collect::<Vec<_>>(), [&[false; 2][..], &[true; 101]].concat());
    assert_eq!(cache.denied_from_cache(), 100);
    clock.advance(10 * MINUTE);
    assert!(one(&layer, Method::POST).await.is_admitted());
}

#[test]
fn a_ban_by_failures_that_refusals_extend_is_an_error() {
    let policy = Policy::new("login", Quota::fixed_window(100, MINUTE))
        .key(key::peer_ip())
        .ban_failures(Ban::new(1, MINUTE, 10 * MINUTE).extending(), Count::all());
    let error = RateLimitLayer::try_new(memory(&ManualClock::new()), policy).expect_err("it has no effect").to_string();
    assert!(error.ends_with("a ban by failures is not extended: leave out extending"), "{error}");
}
