//! What a warning depends on besides its own policy: other layers and policies, handlers, and policies before.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tollgate::response::ActualCost;
use tollgate::{Ban, Key, Policy, Quota, RateLimitHandle, key};
use tower::ServiceExt;

use super::{Logged, MANY, app, layer, pages, request, send, visit, visit_often};

const MINUTE: Duration = Duration::from_secs(60);

fn by_address() -> Policy {
    Policy::new("ip", MANY).key(key::client_ip())
}

fn by_key() -> Policy {
    Policy::new("api-key", MANY).key(key::header("x-api-key"))
}

fn with_real_cost() -> http::Response<Body> {
    let mut response = http::Response::new(Body::empty());
    response.extensions_mut().insert(ActualCost(10));
    response
}

#[test]
fn a_layer_outside_limits() {
    let logged = Logged::start();
    let app = pages().layer(layer([by_key()])).layer(layer([by_address()]));
    assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
    visit_often(&app, "/", 10);
    logged.none();
}

#[test]
fn a_policy_that_limits_nothing_hides_no_request_without_a_limit() {
    let ban = Ban::new(5, MINUTE, MINUTE).whole_layer();
    let bans = Policy::new("login", Quota::per_minute(5)).routes(["/login"]).key(key::client_ip()).ban(ban);
    for other in [by_address().shadow(), bans] {
        let (logged, app) = (Logged::start(), app(&layer([other, by_key()])));
        assert_eq!(send(&app, request("/", &[("x-api-key", "1")])), 200);
        logged.none();
        visit(&app, "/");
        logged.only("TG001", &["policy=\"api-key\"", "no policy limits it"], || visit(&app, "/"));
    }
}

#[tokio::test]
async fn a_handler_that_checks_a_metered_policy_charges_somebody() {
    for charges in [false, true] {
        let handler = move |limits: RateLimitHandle| async move {
            let account = Policy::new("account", MANY).metered();
            let checked = limits.check(&account, &Key::new("account", "ada")).await.expect("memory never fails");
            assert!(checked.is_allowed());
            if charges {
                limits.charge(9);
            }
            with_real_cost()
        };
        let (logged, app) = (Logged::start(), Router::new().route("/", get(handler)).layer(layer([by_address()])));
        for _ in 0..3 {
            assert_eq!(app.clone().oneshot(request("/", &[])).await.expect("a response").status(), 200);
        }
        logged.none();
    }
}

#[test]
fn another_kind_of_key_under_the_same_name_is_warned_of_again() {
    let layer = layer([Policy::new("user", MANY).key(key::bearer())]);
    let (logged, app) = (Logged::start(), app(&layer));
    visit(&app, "/");
    layer.clone().live().replace_policies([Policy::new("user", MANY).key(key::host())]).expect("it works");
    visit(&app, "/");
    assert_eq!(logged.log.count("TG001"), 2);
}

#[test]
fn refusals_are_sampled_whatever_policies_are_replaced() {
    let policy = || Policy::new("ip", Quota::per_hour(1)).key(key::client_ip());
    let layer = layer([policy()]).log_denials();
    let (logged, app) = (Logged::start(), app(&layer));
    for _ in 0..200 {
        layer.clone().live().replace_policies([policy()]).expect("it works");
        visit(&app, "/");
    }
    // One for each period of 10 s that this took, and its count.
    assert!((1..=10).contains(&logged.log.count("code=\"refused\"")), "{}", logged.log.count("code=\"refused\""));
}
