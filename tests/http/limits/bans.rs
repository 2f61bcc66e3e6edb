//! Bans on the whole layer: requests that the policy does not apply to.

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, Method};
use tollgate::key::Lookup;
use tollgate::policy::{AccessList, Count, TierLookup};
use tollgate::store::DenyCache;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};

use crate::rig::{by, expect, is_banned, layer, with};
use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

/// Logins: one a minute, and after two refusals a ban.
fn login(ban: fn(Ban) -> Ban) -> Policy {
    let ban = ban(Ban::new(2, MINUTE, 10 * MINUTE));
    Policy::new("login", Quota::fixed_window(1, MINUTE)).key(key::peer_ip()).methods([Method::POST]).ban(ban)
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

#[tokio::test]
async fn a_banned_client_is_refused_where_the_policy_does_not_apply() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::composite(memory(&clock)).policy(login(Ban::whole_layer)).policy(others());
    assert!(one(&layer, Method::GET).await.is_admitted());
    ban(&layer).await;
    for method in [Method::GET, Method::OPTIONS, Method::POST] {
        let refused = one(&layer, method).await;
        assert!(is_banned(&refused));
        expect(refused.headers(), &[("retry-after", "600"), ("ratelimit", "\"login\";r=0;t=600")]);
    }
    let preflight = |_| {
        let request = with(by(Method::OPTIONS), "origin", "https://a.example");
        with(request, "access-control-request-method", "GET")
    };
    assert!(send(&layer, 1, preflight).await[0].is_admitted());
    clock.advance(10 * MINUTE);
    assert!(one(&layer, Method::GET).await.is_admitted());
}

#[tokio::test]
async fn requests_that_the_policy_does_not_apply_to_are_no_strikes_owe_it_nothing_and_do_not_name_it() {
    let layer = layer([login(Ban::whole_layer).metered(), others()]);
    for _ in 0..120 {
        let response = one(&layer, Method::GET).await;
        let names_it = |headers: &HeaderMap| headers.values().any(|value| value.as_bytes().starts_with(b"\"login\""));
        assert!(!names_it(response.headers()) && !is_banned(&response));
    }
    layer.clone().live().replace_policies([login(Ban::whole_layer).metered()]).expect("it is supported");
    let response = one(&layer, Method::GET).await;
    assert!(response.is_admitted() && response.headers().is_empty(), "{:?}", response.headers());
    assert!(one(&layer, Method::POST).await.is_admitted(), "its unit is there");
}

#[tokio::test]
async fn allowed_clients_and_where_only_its_own_requests_are_banned_the_others_are_not_refused() {
    let layer = layer([login(Ban::whole_layer)]);
    ban(&layer).await;
    let allow = AccessList::parse(["10.0.0.0/8"]).expect("a network");
    layer.clone().live().replace_policies([login(Ban::whole_layer).allow(allow)]).expect("it is supported");
    assert!(one(&layer, Method::GET).await.is_admitted());
    layer.clone().live().replace_policies([login(|ban| ban)]).expect("it is supported");
    assert!(one(&layer, Method::GET).await.is_admitted());
    assert!(is_banned(&one(&layer, Method::POST).await));
}

#[tokio::test]
async fn a_flood_of_a_banned_client_is_refused_from_the_cache_on_all_routes_and_whatever_is_to_be_looked_up() {
    let clock = ManualClock::new();
    let cache = DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
    let by_key = Policy::new("key", Quota::fixed_window(100, MINUTE)).key(key::header("x-key")).tier_lookup(tiers);
    let layer = RateLimitLayer::composite(cache.clone()).policy(login(Ban::whole_layer)).policy(by_key);
    let methods = [Method::POST, Method::POST, Method::POST, Method::GET];
    let request = |place: usize| with(by(methods[place.min(3)].clone()), "x-key", place.to_string());
    let sent = send(&layer, 103, request).await;
    assert_eq!(sent.iter().map(is_banned).collect::<Vec<_>>(), [&[false; 2][..], &[true; 101]].concat());
    let count = cache.denied_from_cache();
    assert!(count >= 97, "{count} of 100 were refused from the cache");
    clock.advance(10 * MINUTE);
    assert!(one(&layer, Method::POST).await.is_admitted());
}

#[test]
fn a_ban_by_failures_that_refusals_extend_is_an_error() {
    let policy = others().ban_failures(Ban::new(1, MINUTE, 10 * MINUTE).extending(), Count::all());
    let error = RateLimitLayer::try_new(memory(&ManualClock::new()), policy).expect_err("it has no effect").to_string();
    assert!(error.ends_with("a ban by failures is not extended: leave out extending"), "{error}");
}
