//! Handlers that know more than the head of the request: an account in a body, a price in a stream.

use std::convert::Infallible;

use futures::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::policy::Count;
use tollgate::{Decision, Key, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, S, Service, Text, as_told, body, expect, get, handle, line, over, send, statuses, with};
use crate::support::time::at;

const TEN: Quota = Quota::fixed_window(10, HOUR);
const TWO: Quota = Quota::token_bucket(2, HOUR);

/// A login that asks `policy` by the account in its body, and answers with the status in `x-status`.
fn login(layer: &RateLimitLayer, policy: Policy) -> Service {
    over(layer, move |request: Request<Text>| {
        let policy = policy.clone();
        async move {
            let limits = handle(&request);
            let (parts, body) = request.into_parts();
            let account = body.collect().await.expect("a body").to_bytes();
            let decision = limits.check(&policy, &Key::hashed("account", account)).await.expect("a decision");
            if decision.is_allowed() {
                return as_told(Request::from_parts(parts, Text::default())).await;
            }
            limits.denial(&decision).map(Full::new)
        }
    })
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

#[test]
fn an_account_known_from_the_body_has_a_limit_of_its_own_which_is_shown_beside_the_others() {
    let rig = Rig::new();
    let service = login(&all(&rig).on_denied_http(|_, _| Response::new("")), account_policy());
    let response = send(&service, of("ada"));
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=10;w=3600, "account";q=2;w=3600"#);
    assert_eq!(line(&response, "ratelimit"), r#""account";r=1;t=1800, "all";r=9;t=3600"#);
    assert_eq!(line(&response, "x-ratelimit-remaining"), "1");
    let told: &Decision = response.extensions().get().expect("a decision");
    assert_eq!((told.is_allowed(), told.outcomes().len()), (true, 2));
    assert_eq!(statuses(&service, [of("bob"), of("ada")]), [200, 200]);
    // The layer does not contradict the refusal.
    let refused = send(&service, of("ada"));
    assert_eq!(refused.status(), 429);
    let told: &Decision = refused.extensions().get().expect("a decision");
    assert_eq!(told.binding().map(|refuses| (refuses.policy(), told.is_allowed())), Some(("account", false)));
    for (name, value) in [
        ("retry-after", "1800"),
        ("ratelimit", r#""account";r=0;t=1800"#),
        ("ratelimit-policy", r#""account";q=2;w=3600, "all";q=10;w=3600"#),
        ("x-ratelimit-remaining", "0"),
        ("cache-control", "no-store"),
        ("content-type", "application/problem+json"),
    ] {
        assert_eq!(line(&refused, name), value, "{name}");
    }
    assert!(body(refused).contains(r#""violated-policies":["account"]"#));
    assert_eq!(rig.left_of_all("all", TEN), 6, "the layer's own policies keep theirs");
    rig.clock.set(at(1_800 * S));
    assert_eq!(statuses(&service, [of("ada"), of("ada")]), [200, 429], "the wait is true");
}

#[test]
fn what_a_check_took_is_settled_by_its_count_although_clients_cannot_see_it() {
    let counted = || account_policy().count(Count::failures());
    for (policy, last) in [(counted(), 429), (counted().unadvertised(), 429), (counted().shadow(), 200)] {
        let rig = Rig::new();
        let answered = |status: u16| with("x-status", &status.to_string()).map(|_| Text::from("ada"));
        let rows = [200, 401, 200, 401].map(|status| (answered(status), status));
        expect(&login(&rig.layer([]), policy), rows.into_iter().chain([(answered(200), last)]));
        assert_eq!(rig.left("account", &Key::hashed("account", "ada"), TWO), 0);
    }
}

#[test]
fn a_hidden_policy_of_a_handler_was_named_by_its_refusal() {
    let hidden = || account_policy().unadvertised();
    let response = send(&login(&all(&Rig::new()), hidden()), of("ada"));
    assert_eq!(line(&response, "ratelimit"), r#""all";r=9;t=3600"#);
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=10;w=3600"#);
    let alone = login(&Rig::new().layer([]), hidden().cost(2));
    assert_eq!(statuses(&alone, [of("ada")]), [200]);
    let refused = send(&alone, of("ada"));
    assert!(refused.status() == 429 && refused.headers().contains_key("retry-after"), "{refused:?}");
    assert!(refused.headers().keys().all(|name| !name.as_str().contains("ratelimit")), "{refused:?}");
    assert!(!body(refused).contains("account"));
}

#[test]
fn a_check_was_listed_under_the_name_of_a_policy_with_the_same_quota_that_did_not_apply() {
    let skipped = || Policy::new("user", TWO).key(key::header("x-user"));
    for (policies, expected) in [
        (vec![skipped(), Policy::new("all", TWO)], r#""all";q=2;w=3600, "account";q=2;w=3600"#),
        // A layer whose policies do not apply gives a handle, too.
        (vec![skipped()], r#""account";q=2;w=3600"#),
    ] {
        let response = send(&login(&Rig::new().layer(policies), account_policy()), of("ada"));
        assert_eq!(line(&response, "ratelimit-policy"), expected);
    }
}

#[test]
fn charges_and_refunds_reach_the_metered_policies_of_every_layer_and_of_checks() {
    let rig = Rig::new();
    let metered = |name| Policy::new(name, TEN).cost(2).metered();
    let layer = |name| rig.layer([metered(name), Policy::new(&format!("{name}-plain"), TEN)]);
    let inner = service_fn(async |request: Request<Text>| {
        let limits = handle(&request);
        let account = Policy::new("account", TEN).cost(2).metered();
        assert!(limits.check(&account, &Key::new("global", "")).await.expect("a decision").is_allowed());
        limits.charge(6);
        limits.refund(3);
        limits.flush().await.expect("the store works");
        limits.charge(2);
        Ok::<_, Infallible>(Response::new(Text::default()))
    });
    let service = layer("outer").layer(layer("middle").layer(layer("inner").layer(inner)));
    let response = service.oneshot(get()).now_or_never().expect("at once").expect("it does not fail");
    let told = line(&response, "ratelimit").to_owned();
    for name in ["inner", "middle", "outer", "account"] {
        assert_eq!(rig.left_of_all(name, TEN), 3, "{name}");
        assert!(told.contains(&format!("\"{name}\";r=3;t=3600")), "{told}");
        let plain = if name == "account" { 10 } else { 9 };
        assert_eq!(rig.left_of_all(&format!("{name}-plain"), TEN), plain, "{name}");
    }
}
