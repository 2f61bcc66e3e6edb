//! Handlers that know more than the head of the request: an account in a body, a price in a stream.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate::policy::Count;
use tollgate::{Decision, Key, Policy, Quota, RateLimitHandle, RateLimitLayer, key};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, S, Service, Text, background, body, get, line, on_each_store, send, statuses, with};
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

fn all(rig: &Rig) -> RateLimitLayer {
    rig.layer([Policy::new("all", TEN)])
}

fn of(account: &'static str) -> Request<Text> {
    get().map(|_| Text::from(account))
}

async fn left_of(rig: &Rig, account: &str) -> u64 {
    rig.left("account", &Key::hashed("account", account), TWO).await
}

#[tokio::test]
async fn an_account_known_from_the_body_has_a_limit_of_its_own_which_is_shown_beside_the_others() {
    on_each_store(async |rig| {
        let layer = all(rig).on_denied_http(|_, _| Response::new(""));
        let service = login(&layer, account_policy());
        let response = send(&service, of("ada")).await;
        assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=10;w=3600, "account";q=2;w=3600"#);
        assert_eq!(line(&response, "ratelimit"), r#""account";r=1;t=1800, "all";r=9;t=3600"#, "{}", rig.name);
        assert_eq!(line(&response, "x-ratelimit-remaining"), "1", "{}", rig.name);
        let told: &Decision = response.extensions().get().expect("a decision");
        assert_eq!((told.is_allowed(), told.outcomes().len()), (true, 2));
        assert_eq!(statuses(&service, [of("bob"), of("ada")]).await, [200, 200], "{}", rig.name);
        // The layer does not contradict the refusal.
        let refused = send(&service, of("ada")).await;
        assert_eq!(refused.status(), 429);
        for (name, value) in [
            ("retry-after", "1800"),
            ("ratelimit", r#""account";r=0;t=1800"#),
            ("ratelimit-policy", r#""account";q=2;w=3600, "all";q=10;w=3600"#),
            ("x-ratelimit-remaining", "0"),
            ("cache-control", "no-store"),
            ("content-type", "application/problem+json"),
        ] {
            assert_eq!(line(&refused, name), value, "{}: {name}", rig.name);
        }
        assert!(body(refused).contains(r#""violated-policies":["account"]"#));
        assert_eq!(rig.left_of_all("all", TEN).await, 6, "{}: the layer's own policies keep theirs", rig.name);
        rig.clock.set(at(1_800 * S));
        assert_eq!(statuses(&service, [of("ada"), of("ada")]).await, [200, 429], "{}: the wait is true", rig.name);
    })
    .await;
}

#[tokio::test]
async fn the_decision_of_a_refusal_inside_was_replaced_by_that_of_the_layer_that_admitted() {
    let rig = Rig::memory();
    let refused = send(&login(&all(&rig), account_policy().cost(3)), of("ada")).await;
    assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""));
    let told: &Decision = refused.extensions().get().expect("a decision");
    assert!(!told.is_allowed(), "{told:?}");
    assert_eq!(told.binding().expect("who refuses").policy(), "account");
    assert_eq!(left_of(&rig, "ada").await, 2, "it takes nothing");
}

#[tokio::test]
async fn what_a_check_took_is_settled_by_its_count_although_clients_cannot_see_it() {
    on_each_store(async |rig| {
        let counted = account_policy().count(Count::failures());
        for (account, policy) in
            [("ada", counted.clone()), ("bob", counted.clone().unadvertised()), ("eve", counted.shadow())]
        {
            let service = login(&rig.layer([]), policy);
            let answered = |status| with("x-status", status).map(|_| Text::from(account));
            let sent = ["200", "401", "200", "401"].map(answered);
            assert_eq!(statuses(&service, sent).await, [200, 401, 200, 401], "{}: {account}", rig.name);
            let last = if account == "eve" { 200 } else { 429 };
            assert_eq!(statuses(&service, [answered("200")]).await, [last], "{}: {account}", rig.name);
            background().await;
            assert_eq!(left_of(rig, account).await, 0, "{}: {account}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_hidden_policy_of_a_handler_was_named_by_its_refusal() {
    let hidden = || account_policy().unadvertised();
    let service = login(&all(&Rig::memory()), hidden());
    let response = send(&service, of("ada")).await;
    assert_eq!(line(&response, "ratelimit"), r#""all";r=9;t=3600"#);
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=10;w=3600"#);
    let alone = login(&Rig::memory().layer([]), hidden());
    assert_eq!(statuses(&alone, [of("ada"), of("ada")]).await, [200, 200]);
    let refused = send(&alone, of("ada")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(refused.headers().keys().all(|name| !name.as_str().contains("ratelimit")), "{refused:?}");
    assert!(!body(refused).contains("account"));
}

#[tokio::test]
async fn a_check_was_listed_under_the_name_of_a_policy_with_the_same_quota_that_did_not_apply() {
    let skipped = || Policy::new("user", TWO).key(key::header("x-user"));
    for (policies, expected) in [
        (vec![skipped(), Policy::new("all", TWO)], r#""all";q=2;w=3600, "account";q=2;w=3600"#),
        // A layer whose policies do not apply gives a handle, too.
        (vec![skipped()], r#""account";q=2;w=3600"#),
    ] {
        let response = send(&login(&Rig::memory().layer(policies), account_policy()), of("ada")).await;
        assert_eq!(line(&response, "ratelimit-policy"), expected);
    }
}

#[tokio::test]
async fn charges_and_refunds_reach_the_metered_policies_of_every_layer_and_of_checks() {
    let ada = Key::new("account", "ada");
    on_each_store(async |rig| {
        let metered = |name| Policy::new(name, TEN).cost(2).metered();
        let layer = |name| rig.layer([metered(name), Policy::new(&format!("{name}-plain"), TEN)]);
        let inner = service_fn(async |request: Request<Text>| {
            let limits = handle(&request);
            let account = Policy::new("account", TEN).cost(2).metered();
            assert!(limits.check(&account, &Key::new("account", "ada")).await.expect("a decision").is_allowed());
            limits.charge(6);
            limits.refund(3);
            limits.flush().await.expect("the store works");
            limits.charge(2);
            Ok::<_, Infallible>(Response::new(Text::default()))
        });
        let service = layer("outer").layer(layer("middle").layer(layer("inner").layer(inner)));
        let response = service.oneshot(get()).await.expect("it does not fail");
        background().await;
        let told = line(&response, "ratelimit").to_owned();
        for name in ["inner", "middle", "outer"] {
            assert_eq!(rig.left_of_all(name, TEN).await, 3, "{}: {name}", rig.name);
            assert_eq!(rig.left_of_all(&format!("{name}-plain"), TEN).await, 9, "{}: {name}", rig.name);
            assert!(told.contains(&format!("\"{name}\";r=3;t=3600")), "{}: {told}", rig.name);
        }
        assert_eq!(rig.left("account", &ada, TEN).await, 3, "{}", rig.name);
        assert!(told.contains("\"account\";r=3;t=3600"), "{}: {told}", rig.name);
    })
    .await;
}
