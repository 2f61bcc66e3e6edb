//! Handlers that know more than the head of the request: an account in a body, a price in a stream.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tollgate::policy::Count;
use tollgate::{Decision, Key, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{HOUR, Rig, S, Service, Text, background, body, get, line, on_each_store, send, statuses, with};
use crate::support::time::at;

const TEN: Quota = Quota::fixed_window(10, HOUR);
const TWO: Quota = Quota::token_bucket(2, HOUR);

fn handle(request: &Request<Text>) -> RateLimitHandle {
    request.extensions().get::<RateLimitHandle>().expect("the layer gives a handle").clone()
}

/// A login that asks `policy` by the account in its body, and answers with the status in `x-status`.
fn login(layer: &RateLimitLayer, policy: Policy) -> Service {
    let inner = service_fn(move |request: Request<Text>| {
        let policy = policy.clone();
        async move {
            let (limits, told) = (handle(&request), request.headers().get("x-status").cloned());
            let account = request.into_body().collect().await?.to_bytes();
            let decision = limits.check(&policy, &Key::hashed("account", account)).await.expect("a decision");
            if !decision.is_allowed() {
                return Ok(limits.denial(&decision).map(Full::new));
            }
            let mut response = Response::new(Text::default());
            if let Some(status) = told {
                *response.status_mut() = StatusCode::from_bytes(status.as_bytes()).expect("a status");
            }
            Ok::<_, Infallible>(response)
        }
    });
    BoxCloneService::new(layer.layer(inner))
}

fn account_policy() -> Policy {
    Policy::new("account", TWO)
}

fn of(account: &'static str) -> Request<Text> {
    get().map(|_| Text::from(account))
}

fn answered(account: &'static str, status: &str) -> Request<Text> {
    with("x-status", status).map(|_| Text::from(account))
}

async fn left_of(rig: &Rig, account: &str) -> u64 {
    rig.left("account", &Key::hashed("account", account), TWO).await
}

#[tokio::test]
async fn an_account_known_from_the_body_has_a_limit_of_its_own() {
    on_each_store(async |rig| {
        let service = login(&rig.layer([Policy::new("all", TEN)]), account_policy());
        let sent = ["ada", "ada", "ada", "bob", "bob", "bob"].map(of);
        assert_eq!(statuses(&service, sent).await, [200, 200, 429, 200, 200, 429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn an_allowed_check_is_shown_beside_the_layers_policies() {
    on_each_store(async |rig| {
        let service = login(&rig.layer([Policy::new("all", TEN)]), account_policy());
        let response = send(&service, of("ada")).await;
        assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=10;w=3600, "account";q=2;w=3600"#);
        assert_eq!(line(&response, "ratelimit"), r#""account";r=1;t=1800, "all";r=9;t=3600"#, "{}", rig.name);
        assert_eq!(line(&response, "x-ratelimit-remaining"), "1", "{}", rig.name);
        let told: &Decision = response.extensions().get().expect("a decision");
        assert_eq!((told.is_allowed(), told.outcomes().len()), (true, 2));
    })
    .await;
}

#[tokio::test]
async fn a_refusal_tells_of_the_account_and_the_layer_does_not_contradict_it() {
    on_each_store(async |rig| {
        let service =
            login(&rig.layer([Policy::new("all", TEN)]).on_denied_http(|_, _| Response::new("")), account_policy());
        assert_eq!(statuses(&service, [of("ada"), of("ada")]).await, [200, 200]);
        let refused = send(&service, of("ada")).await;
        assert_eq!(refused.status(), 429);
        for (name, value) in [
            ("retry-after", "1800"),
            ("ratelimit", r#""account";r=0;t=1800"#),
            ("ratelimit-policy", r#""account";q=2;w=3600, "all";q=10;w=3600"#),
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "0"),
            ("cache-control", "no-store"),
            ("content-type", "application/problem+json"),
        ] {
            assert_eq!(line(&refused, name), value, "{}: {name}", rig.name);
        }
        assert!(body(refused).ends_with(r#""detail":"Retry in 1800 seconds.","violated-policies":["account"]}"#));
        rig.clock.set(at(1_800 * S));
        assert_eq!(statuses(&service, [of("ada"), of("ada")]).await, [200, 429], "{}: the wait is true", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_policy_in_shadow_mode_refuses_no_check() {
    on_each_store(async |rig| {
        let service = login(&rig.layer([Policy::new("all", TEN)]), account_policy().shadow());
        assert_eq!(statuses(&service, ["ada", "ada", "ada"].map(of)).await, [200, 200, 200], "{}", rig.name);
        assert_eq!(left_of(rig, "ada").await, 0, "{}: it counts", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_hidden_policy_of_a_handler_was_named_by_its_refusal() {
    on_each_store(async |rig| {
        let service = login(&rig.layer([]), account_policy().unadvertised());
        for _ in 0..2 {
            assert_eq!(send(&service, of("ada")).await.status(), StatusCode::OK);
        }
        let refused = send(&service, of("ada")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.headers().contains_key("retry-after"));
        assert!(refused.headers().keys().all(|name| !name.as_str().contains("ratelimit")), "{refused:?}");
        assert!(!body(refused).contains("account"));
    })
    .await;
}

#[tokio::test]
async fn the_decision_of_a_refusal_inside_was_replaced_by_that_of_the_layer_that_admitted() {
    let rig = Rig::memory();
    let service = login(&rig.layer([Policy::new("all", TEN)]), account_policy().cost(3));
    let refused = send(&service, of("ada")).await;
    assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""));
    let told: &Decision = refused.extensions().get().expect("a decision");
    assert!(!told.is_allowed(), "{told:?}");
    assert_eq!(told.binding().expect("who refuses").policy(), "account");
}

#[tokio::test]
async fn what_a_check_took_is_settled_by_its_count() {
    on_each_store(async |rig| {
        let service = login(&rig.layer([Policy::new("all", TEN)]), account_policy().count(Count::failures()));
        let sent = ["200", "401", "200", "401", "200"].map(|status| answered("ada", status));
        assert_eq!(statuses(&service, sent).await, [200, 401, 200, 401, 429], "{}", rig.name);
        let response = send(&service, answered("bob", "200")).await;
        assert!(line(&response, "ratelimit").contains(r#""account";r=2;"#), "{}", line(&response, "ratelimit"));
        assert_eq!(left_of(rig, "bob").await, 2, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_refused_check_takes_nothing_and_the_layers_own_policies_keep_theirs() {
    on_each_store(async |rig| {
        let service = login(&rig.layer([Policy::new("all", TEN)]), account_policy().cost(2));
        assert_eq!(statuses(&service, ["ada", "ada", "ada"].map(of)).await, [200, 429, 429], "{}", rig.name);
        assert_eq!((left_of(rig, "ada").await, rig.left_of_all("all", TEN).await), (0, 7), "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_metered_check_is_charged_with_the_rest() {
    on_each_store(async |rig| {
        let (plain, metered) = (Policy::new("all", TEN), Policy::new("metered", TEN).metered());
        let inner = service_fn(async |request: Request<Text>| {
            let (limits, account) = (handle(&request), Policy::new("account", TEN).metered());
            let decision = limits.check(&account, &Key::new("account", "ada")).await.expect("a decision");
            assert!(decision.is_allowed());
            limits.charge(3);
            limits.refund(1);
            Ok::<_, Infallible>(Response::new(Text::default()))
        });
        let service = BoxCloneService::new(rig.layer([plain, metered]).layer(inner));
        let response = send(&service, get()).await;
        let expected = r#""metered";r=7;t=3600, "all";r=9;t=3600, "account";r=7;t=3600"#;
        assert_eq!(line(&response, "ratelimit"), expected, "{}", rig.name);
        background().await;
        assert_eq!(rig.left("account", &Key::new("account", "ada"), TEN).await, 7, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_handle_works_after_the_head_of_the_response_was_sent() {
    on_each_store(async |rig| {
        for (cost, charge, refund, then) in [(1, 4, 0, 5), (6, 0, 2, 6), (6, 0, 100, 10), (1, 3, 2, 8)] {
            let name = format!("streamed-{cost}-{charge}-{refund}");
            let layer = rig.layer([Policy::new(&name, TEN).cost(cost).metered()]);
            let service = layer.layer(service_fn(move |request: Request<Text>| {
                let limits = handle(&request);
                let rest = stream::once(async move {
                    limits.charge(charge);
                    limits.flush().await.expect("the store answers");
                    limits.refund(refund);
                    Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"rest")))
                });
                std::future::ready(Ok::<_, Infallible>(Response::new(StreamBody::new(Box::pin(rest)))))
            }));
            let response = service.oneshot(get()).await.unwrap();
            assert_eq!(response.headers()["x-ratelimit-remaining"], (10 - cost).to_string(), "{}", rig.name);
            assert_eq!(rig.left_of_all(&name, TEN).await, 10 - cost, "{}", rig.name);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "rest");
            background().await;
            assert_eq!(rig.left_of_all(&name, TEN).await, then, "{}: {name}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_check_was_listed_under_the_name_of_a_policy_with_the_same_quota_that_did_not_apply() {
    let skipped = Policy::new("user", TWO).key(key::header("x-user"));
    let layer = Rig::memory().layer([skipped, Policy::new("all", TWO)]);
    let response = send(&login(&layer, account_policy()), of("ada")).await;
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=2;w=3600, "account";q=2;w=3600"#);
}

#[tokio::test]
async fn a_check_that_is_not_advertised_is_not_shown_when_it_is_allowed() {
    let layer = Rig::memory().layer([Policy::new("all", TEN)]);
    let response = send(&login(&layer, account_policy().unadvertised()), of("ada")).await;
    assert_eq!(line(&response, "ratelimit"), r#""all";r=9;t=3600"#);
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=10;w=3600"#);
}

#[tokio::test]
async fn a_layer_whose_policies_do_not_apply_still_gives_a_handle() {
    let skipped = Policy::new("user", TWO).key(key::header("x-user"));
    let service = login(&Rig::memory().layer([skipped]), account_policy());
    let response = send(&service, of("ada")).await;
    assert_eq!(line(&response, "ratelimit-policy"), r#""account";q=2;w=3600"#);
    assert_eq!(statuses(&service, ["ada", "ada"].map(of)).await, [200, 429]);
}

/// Layers with a metered policy each, over a service that charges and refunds.
fn nested(rig: &Rig, charge: u64, refund: u64) -> BoxCloneService<Request<Text>, Response<Text>, Infallible> {
    let layer =
        |name| rig.layer([Policy::new(name, TEN).cost(2).metered(), Policy::new(&format!("{name}-plain"), TEN)]);
    let inner = service_fn(move |request: Request<Text>| {
        let limits = handle(&request);
        limits.charge(charge);
        limits.refund(refund);
        std::future::ready(Ok::<_, Infallible>(Response::new(Text::default())))
    });
    let inside = layer("middle").layer(layer("inner").layer(inner));
    BoxCloneService::new(layer("outer").layer(inside).map_response(|response| response.map(|_| Text::default())))
}

#[tokio::test]
async fn charges_and_refunds_reach_the_metered_policies_of_every_layer() {
    on_each_store(async |rig| {
        let response = nested(rig, 5, 0).oneshot(get()).await.unwrap();
        background().await;
        for name in ["inner", "middle", "outer"] {
            assert_eq!(rig.left_of_all(name, TEN).await, 3, "{}: {name}", rig.name);
            assert_eq!(rig.left_of_all(&format!("{name}-plain"), TEN).await, 9, "{}: {name}", rig.name);
            let told = format!("\"{name}\";r=3;t=3600");
            assert!(line(&response, "ratelimit").contains(&told), "{}: {}", rig.name, line(&response, "ratelimit"));
        }
        assert_eq!(line(&response, "x-ratelimit-remaining"), "3", "{}", rig.name);
        drop(nested(rig, 0, 1).oneshot(get()).await.unwrap());
        background().await;
        for name in ["inner", "middle", "outer"] {
            assert_eq!(rig.left_of_all(name, TEN).await, 2, "{}: {name}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_handler_checks_is_settled_although_clients_cannot_see_it() {
    on_each_store(async |rig| {
        for (account, policy) in [("ada", account_policy().unadvertised()), ("bob", account_policy().shadow())] {
            let service = login(&rig.layer([Policy::new("all", TEN)]), policy.count(Count::failures()));
            assert_eq!(statuses(&service, [of(account), of(account), of(account)]).await, [200; 3], "{}", rig.name);
            background().await;
            assert_eq!(left_of(rig, account).await, 2, "{}: successes are refunded to {account}", rig.name);
        }
    })
    .await;
}
