//! Each decision is counted once, with who made it and what it was.

use std::convert::Infallible;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::timeout;
use tollgate::policy::{AccessList, Count, MissingKey};
use tollgate::store::DenyCache;
use tollgate::{Ban, Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, Source, key};
use tollgate_test::StoreFn;
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;
use crate::rig::{MANY, Mood, Moody, ask, layer, ms, per_user};

const ONE: Quota = Quota::per_hour(1);

fn composite() -> RateLimitLayer {
    let all = Policy::new("all", MANY).unadvertised();
    RateLimitLayer::composite(MemoryStore::new()).policies([all, per_user(ONE), Policy::new("trial", ONE).shadow()])
}

#[tokio::test]
async fn a_request_counts_once_however_many_policies_it_asks() {
    let (watch, layer) = (Watch::start(), composite());
    assert_eq!(ask(&layer, "ada").await.status(), 200);
    watch.saw(&[("decisions_total{source=store,verdict=allowed}", 1)]);
    assert_eq!(ask(&layer, "ada").await.status(), 429);
    watch.saw(&[
        ("decisions_total{source=store,verdict=refused}", 1),
        ("policy_refusals_total{policy=user,mode=enforce}", 1),
        ("policy_refusals_total{policy=trial,mode=shadow}", 1),
    ]);
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
        let watch = Watch::start();
        let is_first = AtomicBool::new(true);
        let store = StoreFn::new(move |_| is_first.swap(false, Ordering::Relaxed)).source(source);
        let layer = RateLimitLayer::new(store, per_user(ONE));
        ask(&layer, "ada").await;
        ask(&layer, "ada").await;
        watch.saw(&[
            (&format!("decisions_total{{source={name},verdict=allowed}}"), 1),
            (&format!("decisions_total{{source={name},verdict=refused}}"), 1),
            ("policy_refusals_total{policy=user,mode=enforce}", 1),
        ]);
    }
}

/// A layer, who asks, and what is reported.
type Row = (RateLimitLayer, &'static [&'static str], &'static [(&'static str, i64)]);

#[tokio::test]
async fn whatever_refuses_or_bans_is_counted_once() {
    let late = key::lookup(key::global(), |_| ready(Ok::<_, Infallible>(Ok::<_, Box<Response<Bytes>>>("x"))));
    let ban = Ban::new(2, ms(3_600_000), ms(3_600_000)).of_verified_keys();
    let failures = Count::statuses([StatusCode::OK]);
    let memory = |policy| RateLimitLayer::new(MemoryStore::new(), policy);
    let rows: [Row; 7] = [
        (
            composite(),
            &["ada", "bob"],
            &[
                ("decisions_total{source=store,verdict=allowed}", 2),
                ("policy_refusals_total{policy=trial,mode=shadow}", 1),
            ],
        ),
        (
            memory(per_user(ONE).unadvertised()),
            &["ada", "ada"],
            &[
                ("decisions_total{source=store,verdict=allowed}", 1),
                ("decisions_total{source=store,verdict=refused}", 1),
                ("policy_refusals_total{policy=user,mode=enforce}", 1),
            ],
        ),
        (
            RateLimitLayer::new(DenyCache::new(MemoryStore::new()), per_user(ONE)),
            &["ada"; 5],
            &[
                ("decisions_total{source=store,verdict=allowed}", 1),
                ("decisions_total{source=store,verdict=refused}", 1),
                ("decisions_total{source=deny_cache,verdict=refused}", 3),
                ("policy_refusals_total{policy=user,mode=enforce}", 4),
            ],
        ),
        (
            memory(Policy::new("late", ONE).key(late)),
            &["ada", "ada"],
            &[
                ("decisions_total{source=store,verdict=allowed}", 1),
                ("decisions_total{source=store,verdict=refused}", 1),
                ("policy_refusals_total{policy=late,mode=enforce}", 1),
            ],
        ),
        (
            memory(per_user(ONE).ban(ban)),
            &["ada"; 4],
            &[
                ("decisions_total{source=store,verdict=allowed}", 1),
                ("decisions_total{source=store,verdict=refused}", 3),
                ("policy_refusals_total{policy=user,mode=enforce}", 3),
                ("bans_total{policy=user,mode=enforce}", 1),
                ("ban_refusals_total{policy=user,mode=enforce}", 2),
            ],
        ),
        (
            memory(per_user(MANY).ban_failures(ban, failures.clone())),
            &["ada"; 2],
            &[("decisions_total{source=store,verdict=allowed}", 2), ("bans_total{policy=user,mode=enforce}", 1)],
        ),
        (
            memory(per_user(MANY).shadow().ban_failures(ban, failures)),
            &["ada"; 2],
            &[("decisions_total{source=store,verdict=allowed}", 2), ("bans_total{policy=user,mode=shadow}", 1)],
        ),
    ];
    for (layer, users, expected) in rows {
        let watch = Watch::start();
        for user in users {
            ask(&layer, user).await;
        }
        watch.saw(expected);
    }
    let (watch, limiter) = (Watch::start(), Limiter::new(MemoryStore::new(), [Rule::new("login", MANY).ban(ban)]));
    for _ in 0..4 {
        limiter.strike(&Key::new("user", "ada")).await.expect("memory never fails");
    }
    watch.saw(&[("bans_total{policy=login,mode=enforce}", 1)]);
}

#[tokio::test]
async fn requests_that_are_turned_away_before_are_no_refusals_of_a_quota() {
    let keyless = Policy::new("tenant", MANY).key(key::header("x-tenant"));
    let rejecting =
        Policy::new("token", MANY).key(key::from_fn(|_| Err::<Key, _>(Box::new(Response::new(Bytes::new())))));
    let listed =
        Policy::new("user", MANY).key(key::header("x-user").plain()).deny(AccessList::parse(["ada"]).expect("a key"));
    for (policy, verdict) in [
        (keyless.clone().missing_key(MissingKey::Deny), "forbidden"),
        (listed, "forbidden"),
        (rejecting, "rejected"),
        (keyless, "allowed"),
    ] {
        let watch = Watch::start();
        ask(&RateLimitLayer::new(MemoryStore::new(), policy), "ada").await;
        let decided = format!("decisions_total{{source=none,verdict={verdict}}}");
        let skipped = ("policies_skipped_total{policy=tenant,reason=key_missing}", 1);
        watch.saw(&[(&decided[..], 1), skipped][..if verdict == "allowed" { 2 } else { 1 }]);
    }
}

#[tokio::test]
async fn a_request_that_does_not_say_for_certain_whom_to_count_is_seen() {
    let unsure = || Policy::new("user", ONE).key(|_: &http::request::Parts| Err::<Key, _>(key::Ambiguous));
    let (watch, sharing) = (Watch::start(), RateLimitLayer::new(MemoryStore::new(), unsure()));
    ask(&sharing, "ada").await;
    watch.saw(&[("decisions_total{source=store,verdict=allowed}", 1), ("ambiguous_keys_total{policy=user}", 1)]);
    let refusing = RateLimitLayer::new(MemoryStore::new(), unsure().missing_key(MissingKey::Deny));
    assert_eq!(ask(&refusing, "ada").await.status(), 400);
    watch.saw(&[("decisions_total{source=none,verdict=ambiguous}", 1), ("ambiguous_keys_total{policy=user}", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_timed_from_asking_the_store_to_its_answer() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::DecidesIn(ms(20))));
    ask(&layer(&store, MANY), "ada").await;
    let [seconds] = watch.values("decision_seconds{source=store}")[..] else { panic!("one decision, one value") };
    assert!((0.020..0.023).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_is_no_decision() {
    let (watch, store) = (Watch::start(), Moody::new(Mood::DecidesIn(ms(20))));
    let layer = layer(&store, MANY);
    assert!(timeout(ms(10), ask(&layer, "ada")).await.is_err());
    watch.saw(&[]);
    ask(&layer, "ada").await;
    watch.saw(&[("decisions_total{source=store,verdict=allowed}", 1)]);
}

#[tokio::test]
async fn what_a_handler_and_a_limiter_ask_counts_and_a_look_does_not() {
    let (watch, layer) = (Watch::start(), RateLimitLayer::new(MemoryStore::new(), per_user(MANY)));
    let account = Policy::new("account", ONE);
    let serve = service_fn(|request: Request<Full<Bytes>>| {
        let (limits, account) =
            (request.extensions().get::<RateLimitHandle>().expect("a handle").clone(), account.clone());
        async move {
            for _ in 0..2 {
                let _ = limits.check(&account, &Key::new("account", "ada")).await.expect("memory decides");
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let mut request = Request::new(Full::default());
    request.headers_mut().insert("x-user", "ada".parse().expect("ASCII"));
    layer.layer(serve).oneshot(request).await.expect("a response");
    watch.saw(&[
        ("decisions_total{source=store,verdict=allowed}", 2),
        ("decisions_total{source=store,verdict=refused}", 1),
        ("policy_refusals_total{policy=account,mode=enforce}", 1),
    ]);

    let (limiter, ada) = (Limiter::new(MemoryStore::new(), [Rule::new("mail", ONE)]), Key::new("user", "ada"));
    let _ = limiter.check(&ada).await.expect("memory decides");
    let _ = limiter.check(&ada).await.expect("memory decides");
    watch.saw(&[
        ("decisions_total{source=store,verdict=allowed}", 1),
        ("decisions_total{source=store,verdict=refused}", 1),
        ("policy_refusals_total{policy=mail,mode=enforce}", 1),
    ]);
    assert_eq!(limiter.peek(&ada).await.expect("memory decides").outcomes()[0].remaining(), 0);
    layer.clone().live().status_service_for(|_| true).oneshot(Request::new(())).await.expect("a response");
    watch.saw(&[]);
}

#[tokio::test]
async fn policies_that_replace_others_are_counted_by_their_names() {
    let (watch, layer) = (Watch::start(), RateLimitLayer::new(MemoryStore::new(), per_user(ONE)));
    ask(&layer, "ada").await;
    ask(&layer, "ada").await;
    watch.changes();
    layer.clone().live().replace_policies([per_user(ONE), Policy::new("new", ONE).shadow()]).unwrap();
    ask(&layer, "ada").await;
    watch.saw(&[
        ("decisions_total{source=store,verdict=refused}", 1),
        ("policy_refusals_total{policy=user,mode=enforce}", 1),
    ]);
    layer
        .clone()
        .live()
        .replace_policies([Policy::new("user", Quota::fixed_window(1, ms(3_600_000))).shadow()])
        .unwrap();
    ask(&layer, "bob").await;
    ask(&layer, "bob").await;
    watch.saw(&[
        ("decisions_total{source=store,verdict=allowed}", 2),
        ("policy_refusals_total{policy=user,mode=shadow}", 1),
    ]);
}
