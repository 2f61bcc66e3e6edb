//! Each decision is counted once, with who made it and what it was, and each request that a policy did not count.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::timeout;
use tollgate::policy::{AccessList, Count, MissingKey};
use tollgate::store::DenyCache;
use tollgate::{
    Ban, Key, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, Source, key,
};
use tollgate_test::StoreFn;
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;
use crate::rig::{MANY, Mood, Moody, ask, layer, ms, per_user};

const ONE: Quota = Quota::per_hour(1);

const ALLOWED: &str = "decisions_total{source=store,verdict=allowed}";
const REFUSED: &str = "decisions_total{source=store,verdict=denied}";
const CACHED: &str = "decisions_total{source=deny_cache,verdict=denied}";
const UNCOUNTED: &str = "decisions_total{source=none,verdict=allowed}";
const FORBIDDEN: &str = "decisions_total{source=none,verdict=forbidden}";
const REJECTED: &str = "decisions_total{source=none,verdict=rejected}";
const UNSURE: &str = "decisions_total{source=none,verdict=ambiguous}";
const BY_USER: &str = "policy_denials_total{policy=user,mode=enforce}";
const SHADOW: &str = "policy_denials_total{policy=user,mode=shadow}";
const TRIAL: &str = "policy_denials_total{policy=trial,mode=shadow}";
const BAN: &str = "bans_total{policy=user,mode=enforce}";
const SHADOW_BAN: &str = "bans_total{policy=user,mode=shadow}";
const BANNED: &str = "ban_denials_total{policy=user,mode=enforce}";
const AMBIGUOUS: &str = "ambiguous_keys_total{policy=user}";
const SCOPE: &str = "policies_skipped_total{policy=user,reason=scope}";
const LIST: &str = "policies_skipped_total{policy=user,reason=list}";
const KEYLESS: &str = "policies_skipped_total{policy=user,reason=key_missing}";

/// What the policy is, how often one user asks, and what is reported.
type Row = (&'static str, Policy, usize, &'static [(&'static str, i64)]);

fn memory(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), policy)
}

fn by(key: impl key::KeyExtractor) -> Policy {
    Policy::new("user", ONE).key(key)
}

fn rows() -> Vec<Row> {
    let ban = Ban::new(2, ms(3_600_000), ms(3_600_000)).of_verified_keys();
    let failing = || per_user(MANY).ban_failures(ban, Count::statuses([StatusCode::OK]));
    let found = by(key::lookup(key::global(), |_| ready(Ok::<_, Infallible>("x"))));
    let absent = by(key::lookup(key::header("x-user"), |_| ready(Ok::<_, Infallible>(None::<Key>))));
    let rejecting = by(key::from_fn(|_| Err::<Key, _>(Box::new(Response::new(Bytes::new())))));
    let unsure = || by(key::from_fn(|_| Err::<Key, _>(key::Ambiguous)));
    let (keyless, listed) = (|| by(key::header("x-tenant")), || by(key::header("x-user").plain()));
    let denied = || keyless().missing_key(MissingKey::Deny);
    let ada = || AccessList::default().key_of("header x-user", "ada");
    let with_ban = per_user(ONE).ban(ban);
    vec![
        ("a key that is looked up", found, 2, &[(ALLOWED, 1), (REFUSED, 1), (BY_USER, 1)]),
        ("a ban", with_ban, 4, &[(ALLOWED, 1), (REFUSED, 3), (BY_USER, 3), (BAN, 1), (BANNED, 2)]),
        ("a ban by failures", failing(), 2, &[(ALLOWED, 2), (BAN, 1)]),
        ("that in shadow mode", failing().shadow(), 2, &[(ALLOWED, 2), (SHADOW_BAN, 1)]),
        ("a missing key is denied", denied(), 1, &[(FORBIDDEN, 1)]),
        ("that in shadow mode", denied().shadow(), 1, &[(UNCOUNTED, 1)]),
        ("a list to deny", listed().deny(ada()), 1, &[(FORBIDDEN, 1)]),
        ("a key rejects", rejecting, 1, &[(REJECTED, 1)]),
        ("an ambiguous key", unsure(), 1, &[(ALLOWED, 1), (AMBIGUOUS, 1)]),
        ("that is denied", unsure().missing_key(MissingKey::Deny), 1, &[(UNSURE, 1), (AMBIGUOUS, 1)]),
        ("another method", per_user(ONE).methods([Method::POST]), 1, &[(UNCOUNTED, 1), (SCOPE, 1)]),
        ("a closure leaves it out", per_user(ONE).when(|_| false), 1, &[(UNCOUNTED, 1), (SCOPE, 1)]),
        ("a list to allow", listed().allow(ada()), 1, &[(UNCOUNTED, 1), (LIST, 1)]),
        ("no key", keyless(), 1, &[(UNCOUNTED, 1), (KEYLESS, 1)]),
        ("that in shadow mode", keyless().shadow(), 1, &[(UNCOUNTED, 1), (KEYLESS, 1)]),
        ("a key that is not found", absent, 1, &[(UNCOUNTED, 1), (KEYLESS, 1)]),
    ]
}

#[tokio::test]
async fn whatever_decides_bans_or_does_not_count_a_request_is_counted_once() {
    for (name, policy, times, expected) in rows() {
        let (watch, layer) = (Watch::start(), memory(policy));
        for _ in 0..times {
            ask(&layer, "ada").await;
        }
        watch.saw(name, expected);
    }
}

#[tokio::test]
async fn what_leaves_little_of_a_limit_is_counted_if_the_layer_logs_it() {
    let near = "near_limit_total{policy=user}";
    for (layer, expected) in
        [(memory(per_user(Quota::per_hour(4))), 0), (memory(per_user(Quota::per_hour(4))).log_near_limit(0.5), 2)]
    {
        let watch = Watch::start();
        for _ in 0..4 {
            ask(&layer, "ada").await;
        }
        let expected: &[_] = if expected == 0 { &[(ALLOWED, 4)] } else { &[(ALLOWED, 4), (near, expected)] };
        watch.saw("four of four", expected);
    }
}

#[tokio::test]
async fn a_request_counts_once_however_many_policies_it_asks_and_whoever_refuses_it() {
    let watch = Watch::start();
    let all = [Policy::new("all", MANY).unadvertised(), per_user(ONE), Policy::new("trial", ONE).shadow()];
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(all);
    ask(&layer, "ada").await;
    watch.saw("all allow it", &[(ALLOWED, 1)]);
    ask(&layer, "ada").await;
    watch.saw("two refuse it", &[(REFUSED, 1), (BY_USER, 1), (TRIAL, 1)]);
    ask(&layer, "bob").await;
    watch.saw("one in shadow mode refuses it", &[(ALLOWED, 1), (TRIAL, 1)]);

    let cached = RateLimitLayer::new(DenyCache::new(MemoryStore::new()), per_user(ONE));
    for _ in 0..5 {
        ask(&cached, "ada").await;
    }
    watch.saw("a cache", &[(ALLOWED, 1), (REFUSED, 1), (CACHED, 3), (BY_USER, 4)]);
    let fails = |_| ready(Err::<Option<Key>, _>(io::Error::other("no database")));
    let lookup = memory(by(key::lookup(key::header("x-user"), fails))).on_failure(OnFailure::Allow);
    ask(&lookup, "ada").await;
    watch.saw("a lookup fails", &[(UNCOUNTED, 1), (KEYLESS, 1)]);
    lookup.live().status_service_for(|_| true).oneshot(Request::new(())).await.expect("a response");
    watch.saw("a look at the status", &[]);
}

#[tokio::test]
async fn each_source_has_its_name() {
    for (source, name) in [
        (Source::Store, "store"),
        (Source::DenyCache, "deny_cache"),
        (Source::Lease, "lease"),
        (Source::Ratio, "ratio"),
        (Source::Fallback, "fallback"),
        (Source::FailOpen, "fail_open"),
    ] {
        let (watch, is_first) = (Watch::start(), AtomicBool::new(true));
        let store = StoreFn::new(move |_| is_first.swap(false, Ordering::Relaxed)).source(source);
        let layer = RateLimitLayer::new(store, per_user(ONE));
        ask(&layer, "ada").await;
        ask(&layer, "ada").await;
        let [allowed, refused] = [ALLOWED, REFUSED].map(|series| series.replace("store", name));
        watch.saw(name, &[(&allowed, 1), (&refused, 1), (BY_USER, 1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_timed_to_its_answer_and_a_request_that_is_dropped_before_is_none() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::DecidesIn(ms(20))));
    let layer = layer(&store, MANY);
    timeout(ms(10), ask(&layer, "ada")).await.expect_err("it waits");
    watch.saw("it is dropped", &[]);
    ask(&layer, "ada").await;
    let [seconds] = watch.values("decision_seconds{source=store}")[..] else { panic!("one decision, one value") };
    assert!((0.020..0.023).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn what_a_handler_and_a_limiter_ask_counts_and_a_peek_does_not() {
    let watch = Watch::start();
    let serve = service_fn(async |request: Request<Full<Bytes>>| {
        let account = Policy::new("user", ONE);
        let limits: &RateLimitHandle = request.extensions().get().expect("a handle");
        for _ in 0..2 {
            let _ = limits.check(&account, &Key::new("user", "ada")).await.expect("memory decides");
        }
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let all = memory(Policy::new("all", MANY)).log_near_limit(0.5);
    all.layer(serve).oneshot(Request::default()).await.expect("a response");
    let near = ("near_limit_total{policy=user}", 1);
    watch.saw("a handler", &[(ALLOWED, 2), (REFUSED, 1), (BY_USER, 1), near]);
    let unadvertised = service_fn(async |request: Request<Full<Bytes>>| {
        let limits: &RateLimitHandle = request.extensions().get().expect("a handle");
        let account = Policy::new("user", ONE).unadvertised();
        let _ = limits.check(&account, &Key::new("user", "eve")).await.expect("memory decides");
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    all.layer(unadvertised).oneshot(Request::default()).await.expect("a response");
    watch.saw("a handler's policy that is not advertised", &[(ALLOWED, 2)]);

    let ban = Ban::new(2, ms(3_600_000), ms(3_600_000)).of_verified_keys();
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("user", ONE).ban(ban)]);
    let [ada, bob] = ["ada", "bob"].map(|user| Key::new("user", user));
    for _ in 0..2 {
        let _ = limiter.check(&ada).await.expect("memory decides");
    }
    watch.saw("a limiter", &[(ALLOWED, 1), (REFUSED, 1), (BY_USER, 1)]);
    assert_eq!(limiter.peek(&ada).await.expect("memory decides").outcomes()[0].remaining(), 0);
    watch.saw("a peek", &[]);
    for _ in 0..4 {
        limiter.strike(&bob).await.expect("memory decides");
    }
    watch.saw("strikes", &[(BAN, 1)]);
}

#[tokio::test]
async fn policies_that_replace_others_are_counted_by_their_names() {
    let (watch, layer) = (Watch::start(), memory(per_user(ONE)));
    ask(&layer, "ada").await;
    watch.saw("the first one", &[(ALLOWED, 1)]);
    let replace = |policies: Vec<Policy>| layer.clone().live().replace_policies(policies).expect("they are valid");
    replace(vec![per_user(ONE), Policy::new("trial", ONE).shadow()]);
    ask(&layer, "ada").await;
    watch.saw("the same beside another", &[(REFUSED, 1), (BY_USER, 1)]);
    replace(vec![Policy::new("user", Quota::fixed_window(1, ms(3_600_000))).shadow()]);
    ask(&layer, "bob").await;
    ask(&layer, "bob").await;
    watch.saw("one of its name in shadow mode", &[(ALLOWED, 2), (SHADOW, 1)]);
}
