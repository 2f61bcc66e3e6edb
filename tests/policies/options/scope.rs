//! Which requests a policy applies to.

use axum::Router;
use axum::body::Body;
use axum::routing::{get as on_get, post as on_post};
use futures::FutureExt;
use http::{Method, Request};
use tollgate::{Policy, Quota, key};
use tower::ServiceExt;

use super::rig::{Rig, Service, Text, and, expect, line, method, now, with};

const ONE: Quota = Quota::per_hour(1);

fn service(policy: Policy) -> Service {
    Rig::memory().service([policy])
}

/// What a browser sends before a request from another site.
fn preflight() -> Request<Text> {
    and(and(method(Method::OPTIONS), "origin", "https://a.example"), "access-control-request-method", "PUT")
}

/// An app of three routes, with a policy for some of them.
fn app(policy: Policy) -> Router {
    let inner = Router::new().route("/nested/{id}", on_get(|| async {}));
    let routes = Router::new().route("/users/{id}", on_get(|| async {})).route("/search", on_post(|| async {}));
    routes.nest("/api", inner).layer(Rig::memory().layer([policy]))
}

#[track_caller]
fn route(app: &Router, method: Method, uri: &str, status: u16) {
    let request = Request::builder().method(method).uri(uri).body(Body::empty()).expect("a request");
    let response = app.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response");
    assert_eq!(response.status(), status, "{uri}");
}

#[test]
fn a_policy_applies_to_its_methods_only() {
    let service = service(Policy::new("writes", ONE).methods([Method::POST, Method::PUT]));
    for (sent, status) in [
        (Method::GET, 200),
        (Method::POST, 200),
        (Method::GET, 200),
        (Method::PUT, 429),
        (Method::POST, 429),
        (Method::DELETE, 200),
    ] {
        expect(&service, method(sent), status);
    }
}

#[test]
fn a_request_a_policy_does_not_apply_to_is_not_told_of_it() {
    let service = service(Policy::new("writes", ONE).methods([Method::POST]));
    assert_eq!(now(&service, method(Method::GET)).headers().len(), 0);
    assert_eq!(line(&now(&service, method(Method::POST)), "ratelimit-policy"), r#""writes";q=1;w=3600"#);
}

#[test]
fn a_policy_applies_to_the_templates_of_its_routes_only() {
    let app = app(Policy::new("users", ONE).routes(["/users/{id}"]));
    route(&app, Method::GET, "/users/1", 200);
    route(&app, Method::GET, "/users/2", 429);
    route(&app, Method::POST, "/search", 200);
    route(&app, Method::POST, "/search", 200);
}

#[test]
fn a_route_is_the_template_and_not_the_path() {
    let app = app(Policy::new("users", ONE).routes(["/users/1", "/users"]));
    route(&app, Method::GET, "/users/1", 200);
    route(&app, Method::GET, "/users/1", 200);
}

#[test]
fn a_nested_route_is_named_with_its_prefix() {
    let app = app(Policy::new("nested", ONE).routes(["/api/nested/{id}"]));
    route(&app, Method::GET, "/api/nested/1", 200);
    route(&app, Method::GET, "/api/nested/2", 429);
}

#[test]
fn a_policy_for_routes_does_not_apply_where_there_is_no_router() {
    let service = service(Policy::new("users", ONE).routes(["/"]));
    expect(&service, method(Method::GET), 200);
    expect(&service, method(Method::GET), 200);
}

#[test]
fn a_closure_says_where_a_policy_applies() {
    let service = service(Policy::new("beta", ONE).when(|parts| parts.headers.contains_key("x-beta")));
    for (name, status) in [("x-other", 200), ("x-beta", 200), ("x-other", 200), ("x-beta", 429)] {
        expect(&service, with(name, "1"), status);
    }
}

#[test]
fn methods_routes_and_the_closure_must_all_agree() {
    let policy = Policy::new("all", ONE).methods([Method::POST]).routes(["/search"]);
    let app = app(policy.clone().when(|parts| parts.uri.query().is_some()));
    for (method, uri, status) in [
        (Method::POST, "/search", 200),
        (Method::GET, "/users/1?q", 200),
        (Method::POST, "/search?q", 200),
        (Method::POST, "/search", 200),
        (Method::POST, "/search?q", 429),
    ] {
        route(&app, method, uri, status);
    }
}

#[test]
fn a_preflight_is_not_counted() {
    let service = service(Policy::new("all", ONE));
    for _ in 0..3 {
        expect(&service, preflight(), 200);
    }
    expect(&service, method(Method::GET), 200);
    expect(&service, preflight(), 200);
    expect(&service, method(Method::GET), 429);
}

#[test]
fn an_options_request_that_is_no_preflight_is_counted() {
    let service = service(Policy::new("all", Quota::per_hour(2)));
    expect(&service, method(Method::OPTIONS), 200);
    expect(&service, and(method(Method::OPTIONS), "origin", "https://a.example"), 200);
    expect(&service, and(method(Method::OPTIONS), "access-control-request-method", "PUT"), 429);
}

#[test]
fn a_request_of_another_method_is_no_preflight_whatever_its_headers() {
    let service = service(Policy::new("all", ONE));
    let disguised = || {
        let mut request = preflight();
        *request.method_mut() = Method::GET;
        request
    };
    expect(&service, disguised(), 200);
    expect(&service, disguised(), 429);
}

#[test]
fn a_policy_can_count_preflights_too() {
    let service = service(Policy::new("all", ONE).count_preflights().key(key::global()));
    expect(&service, preflight(), 200);
    expect(&service, preflight(), 429);
}
