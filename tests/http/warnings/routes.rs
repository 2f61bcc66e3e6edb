//! Policies whose routes do not match: TG002.

use axum::Router;
use axum::routing::get;
use futures::FutureExt;
use tollgate::{Policy, RateLimitLayer, key};
use tower::{Layer, ServiceExt};

use super::{Logged, MANY, app, layer, pages, request, visit};

fn on<const N: usize>(routes: [&'static str; N]) -> RateLimitLayer {
    layer([Policy::new("login", MANY).routes(routes)])
}

#[test]
fn a_nested_route_is_named_with_its_prefix() {
    let logged = Logged::start();
    let nested = Router::new().nest("/api", app(&on(["/login"])));
    assert_eq!(visit(&nested, "/api"), 200);
    logged.none();
    assert_eq!(visit(&nested, "/api/login"), 200);
    let texts = ["policy=\"login\"", "route=\"/login\"", "matched=\"/api/login\"", "inside Router::nest"];
    logged.only("TG002", &texts, || visit(&nested, "/api/login"));
}

#[test]
fn a_layer_around_the_router_is_one_warning() {
    let (logged, around) = (Logged::start(), on(["/login"]).layer(pages()));
    let send = |path| {
        let response = around.clone().oneshot(request(path, &[])).now_or_never();
        assert_eq!(response.expect("an answer at once").expect("a response").status(), 200);
    };
    send("/");
    logged.none();
    send("/login");
    let texts = ["policy=\"login\"", "route=\"/login\"", "no route has matched", "Router::layer"];
    logged.one("TG002", &texts);
    (0..50).for_each(|_| send("/login"));
    logged.one("TG002", &texts);
}

#[test]
fn routes_that_match_warn_of_nothing() {
    let logged = Logged::start();
    let inner = Router::new().route("/login", get(|| async {}));
    let app = pages().nest("/api", inner).layer(on(["/login", "/users/{id}", "/api/login"]));
    for path in ["/login", "/users/7", "/api/login", "/nothing"] {
        visit(&app, path);
    }
    logged.none();
}

#[test]
fn a_path_that_clients_try_is_no_warning_where_routes_match() {
    let logged = Logged::start();
    let app = Router::new().route("/", get(|| async {})).layer(on(["/login"]));
    assert_eq!((visit(&app, "/"), visit(&app, "/login")), (200, 404));
    logged.none();
}

#[test]
fn a_path_that_a_template_matches_is_no_route() {
    let (logged, app) = (Logged::start(), app(&on(["/users/42"])));
    assert_eq!(visit(&app, "/users/7"), 200);
    logged.none();
    visit(&app, "/users/42");
    logged.only("TG002", &["matched=\"/users/{id}\"", "when(...)"], || visit(&app, "/users/42"));
}

#[test]
fn a_route_that_another_policy_names_by_its_whole_template_is_no_trap() {
    let login = |name, route| Policy::new(name, MANY).routes([route]);
    let limits = layer([login("login", "/login"), login("api-login", "/api/login")]);
    let page = || Router::new().route("/login", get(|| async {})).layer(limits.clone());
    let (logged, app) = (Logged::start(), page().nest("/api", page()));
    assert_eq!((visit(&app, "/api/login"), visit(&app, "/login")), (200, 200));
    logged.none();
}

#[test]
fn policies_that_replace_others_may_match() {
    let (logged, layer) = (Logged::start(), on(["/login"]));
    let nested = Router::new().nest("/api", app(&layer));
    visit(&nested, "/api/login");
    layer.clone().live().replace_policies([Policy::new("login", MANY).routes(["/api/login"])]).expect("it can match");
    logged.only("TG002", &["matched=\"/api/login\""], || visit(&nested, "/api/login"));
}

#[test]
fn a_key_by_route_around_the_router_is_one_warning() {
    let by_route = || Policy::new("route", MANY).key((key::client_ip(), key::route()));
    for policy in [by_route(), Policy::new("route", MANY).key(key::route())] {
        let logged = Logged::start();
        let around = Router::new().fallback_service(layer([policy]).layer(pages()));
        visit(&around, "/users/7");
        let texts = ["policy=\"route\"", "all such requests share one counter"];
        logged.only("TG002", &texts, || visit(&around, "/users/7"));
    }
    let (logged, app) = (Logged::start(), app(&layer([by_route()])));
    assert_eq!((visit(&app, "/"), visit(&app, "/missing")), (200, 404));
    logged.none();
}

#[test]
fn a_policy_without_routes_needs_none() {
    let logged = Logged::start();
    let around = layer([Policy::new("all", MANY)]).layer(pages());
    visit(&Router::new().fallback_service(around), "/login");
    logged.none();
}
