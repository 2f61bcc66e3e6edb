//! Several policies in one decision, and layers around layers, which are several decisions.

use std::convert::Infallible;

use futures::FutureExt;
use http::{Request, Response};
use tollgate::body::ResponseBody;
use tollgate::{Decision, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{HOUR, Rig, Text, and, body, from, hello, line, on_each_store, send, with};

const MANY: Quota = Quota::token_bucket(1_000, HOUR);
const ONE: Quota = Quota::fixed_window(1, HOUR);

fn user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user").plain())
}

fn ip(quota: Quota) -> Policy {
    Policy::new("ip", quota).key(key::client_ip())
}

/// A request of ada's from a peer.
fn from_ada(peer: &str) -> Request<Text> {
    and(from(peer), "x-user", "ada")
}

#[tokio::test]
async fn a_thousand_requests_refused_by_the_ip_policy_have_cost_the_user_nothing() {
    on_each_store(async |rig| {
        for (peer, policies) in [("10.0.0.1", [ip(ONE), user(MANY)]), ("10.0.0.2", [user(MANY), ip(ONE)])] {
            let service = rig.service(policies);
            let ada = tollgate::Key::new("header x-user", "ada");
            assert_eq!(send(&service, from_ada(peer)).await.status(), 200);
            let left = rig.left("user", &ada, MANY).await;
            for _ in 0..1_000 {
                assert_eq!(service.clone().oneshot(from_ada(peer)).await.unwrap().status(), 429);
            }
            assert_eq!(rig.left("user", &ada, MANY).await, left, "{}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_names_every_policy_that_is_violated_and_the_longest_wait() {
    let slow = Quota::token_bucket(1, HOUR);
    let fast = Quota::token_bucket(1, HOUR / 60);
    on_each_store(async |rig| {
        let service = rig.service([ip(fast), user(slow), Policy::new("all", MANY)]);
        assert_eq!(send(&service, from_ada("10.0.0.1")).await.status(), 200);
        let refused = send(&service, from_ada("10.0.0.1")).await;
        let policies = r#""ip";q=1;w=60, "user";q=1;w=3600, "all";q=1000;w=3600"#;
        assert_eq!(line(&refused, "ratelimit-policy"), policies, "{}", rig.name);
        assert_eq!(line(&refused, "ratelimit"), r#""user";r=0;t=3600, "ip";r=0;t=60"#, "{}", rig.name);
        assert_eq!(line(&refused, "retry-after"), "3600", "{}", rig.name);
        let told: Vec<_> = refused.extensions().get::<Decision>().expect("a decision").denied_by().cloned().collect();
        assert_eq!(told.len(), 2, "{}", rig.name);
        assert!(body(refused).ends_with(r#""violated-policies":["ip","user"]}"#), "{}", rig.name);
        let other = send(&service, and(from("10.0.0.1"), "x-user", "bob")).await;
        assert_eq!(
            (line(&other, "ratelimit"), line(&other, "retry-after")),
            (r#""ip";r=0;t=60"#, "60"),
            "{}",
            rig.name
        );
    })
    .await;
}

#[tokio::test]
async fn no_wait_helps_if_one_of_those_violated_can_never_hold_the_cost() {
    on_each_store(async |rig| {
        let service = rig.service([Policy::new("small", ONE).cost_by(|_| 2), user(ONE)]);
        let refused = send(&service, with("x-user", "ada")).await;
        assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""), "{}", rig.name);
        let service = rig.service([user(ONE)]);
        assert_eq!(send(&service, with("x-user", "ada")).await.status(), 200, "{}: nothing was taken", rig.name);
    })
    .await;
}

/// The response of a layer around a layer.
#[track_caller]
fn nested(outer: &RateLimitLayer, inner: &RateLimitLayer, request: Request<Text>) -> Response<impl Sized> {
    let service =
        outer.layer(inner.layer(service_fn(async |_: Request<Text>| Ok::<_, Infallible>(Response::default()))));
    let service = service.map_response(|response: Response<ResponseBody<ResponseBody<Text>>>| response);
    service.oneshot(request).now_or_never().expect("an answer at once").expect("a response")
}

#[test]
fn nested_layers_are_merged_into_one_line_each() {
    let rig = Rig::memory();
    let (outer, inner) = (rig.layer([ip(MANY)]), rig.layer([user(Quota::fixed_window(5, HOUR))]));
    let response = nested(&outer, &inner, from_ada("10.0.0.1"));
    for (name, value) in [
        ("ratelimit", r#""user";r=4;t=3600, "ip";r=999;t=3597"#),
        ("ratelimit-policy", r#""user";q=5;w=3600, "ip";q=1000;w=3600"#),
        ("x-ratelimit-limit", "5"),
        ("x-ratelimit-remaining", "4"),
    ] {
        assert_eq!(line(&response, name), value, "{name}");
    }
}

#[test]
fn a_refusal_of_the_inner_layer_keeps_its_wait_and_its_decision() {
    let rig = Rig::memory();
    let (outer, inner) = (rig.layer([ip(MANY)]), rig.layer([user(ONE)]));
    let _ = nested(&outer, &inner, from_ada("10.0.0.1"));
    let refused = nested(&outer, &inner, from_ada("10.0.0.1"));
    assert_eq!(refused.status(), 429);
    for (name, value) in [
        ("retry-after", "3600"),
        ("ratelimit", r#""user";r=0;t=3600"#),
        ("ratelimit-policy", r#""user";q=1;w=3600, "ip";q=1000;w=3600"#),
        ("x-ratelimit-remaining", "0"),
    ] {
        assert_eq!(line(&refused, name), value, "{name}");
    }
    let told: &Decision = refused.extensions().get().expect("a decision");
    assert!(!told.is_allowed(), "{told:?}");
}

#[tokio::test]
async fn nested_layers_charge_the_outer_one_for_what_the_inner_one_refuses() {
    let all = || Policy::new("all", Quota::fixed_window(10, HOUR));
    on_each_store(async |rig| {
        let left = async || rig.left_of_all("all", Quota::fixed_window(10, HOUR)).await;
        let nested = rig.layer([all()]).layer(hello(&rig.layer([user(ONE)])));
        for status in [200, 429, 429, 429] {
            assert_eq!(nested.clone().oneshot(with("x-user", "ada")).await.unwrap().status(), status);
        }
        assert_eq!(left().await, 6, "{}: each refusal took one", rig.name);
        let flat = rig.service([all(), user(ONE)]);
        for _ in 0..4 {
            assert_eq!(send(&flat, with("x-user", "ada")).await.status(), 429);
        }
        assert_eq!(left().await, 6, "{}: in one layer they take nothing", rig.name);
    })
    .await;
}
