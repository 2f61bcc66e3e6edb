//! Policies whose routes do not match: TG002.

use axum::Router;
use axum::routing::get;
use futures::FutureExt;
use tollgate::key::KeyExtractor;
use tollgate::{MemoryStore, Policy, RateLimitLayer, key};
use tower::{Layer, ServiceExt};

use super::{Logged, MANY, app, layer, pages, request, visit, visit_often};

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
fn a_nested_route_is_named_after_a_thousand_requests_from_outside() {
    let logged = Logged::start();
    let nested = Router::new().nest("/api", pages()).layer(on(["/login"]));
    (0..999).for_each(|_| assert_eq!(visit(&nested, "/api/login"), 200));
    logged.none();
    visit(&nested, "/api/users/7");
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
    (0..1_000).for_each(|_| send("/login"));
    logged.one("TG002", &texts);
}

#[test]
fn a_layer_around_the_router_is_one_warning_after_a_thousand_if_no_path_is_a_template() {
    let (logged, around) = (Logged::start(), on(["/users/{id}"]).layer(pages()));
    let around = Router::new().fallback_service(around);
    (0..999).for_each(|_| assert_eq!(visit(&around, "/users/7"), 200));
    logged.none();
    visit(&around, "/users/7");
    let texts = ["route=\"/users/{id}\"", "none of the first 1000 requests had a route", "Router::layer"];
    logged.only("TG002", &texts, || visit(&around, "/users/7"));
}

#[test]
fn a_template_with_a_parameter_that_never_matches_is_one_warning() {
    let (logged, app) = (Logged::start(), app(&on(["/users/{user}"])));
    (0..999).for_each(|_| assert_eq!(visit(&app, "/users/7"), 200));
    logged.none();
    visit(&app, "/users/7");
    let texts = ["route=\"/users/{user}\"", "if the route is in use", "prefixes of nested routers"];
    logged.only("TG002", &texts, || visit(&app, "/users/7"));
}

#[test]
fn routes_that_match_warn_of_nothing() {
    let logged = Logged::start();
    let inner = Router::new().route("/login", get(|| async {}));
    let app = pages().nest("/api", inner).layer(on(["/login", "/users/{id}", "/api/login"]));
    for path in ["/login", "/users/7", "/api/login", "/nothing"].iter().cycle().take(1_200) {
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
fn policies_that_replace_others_are_watched_anew() {
    let (logged, layer) = (Logged::start(), on(["/login"]));
    let nested = Router::new().nest("/api", app(&layer));
    visit(&nested, "/api/login");
    logged.one("TG002", &["matched=\"/api/login\""]);
    layer.replace_policies([Policy::new("login", MANY).routes(["/api/login"])]).expect("it can match");
    visit_often(&nested, "/api/login", 1_001);
    logged.one("TG002", &["matched=\"/api/login\""]);
}

#[test]
fn a_policy_without_routes_needs_none() {
    let logged = Logged::start();
    let around = RateLimitLayer::new(MemoryStore::new(), Policy::new("all", MANY)).layer(pages());
    let around = Router::new().fallback_service(around);
    (0..1_001).for_each(|_| assert_eq!(visit(&around, "/login"), 200));
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
fn a_key_by_route_around_the_router_is_one_warning_after_a_thousand() {
    let by_route = || Policy::new("route", MANY).key(key::client_ip().and(key::route()));
    for policy in [by_route(), Policy::new("route", MANY).key(key::route())] {
        let logged = Logged::start();
        let around = Router::new().fallback_service(layer([policy]).layer(pages()));
        (0..999).for_each(|_| assert_eq!(visit(&around, "/users/7"), 200));
        logged.none();
        visit(&around, "/");
        logged.only("TG002", &["policy=\"route\"", "so all share one counter"], || visit(&around, "/"));
    }
    let (logged, app) = (Logged::start(), app(&layer([by_route()])));
    assert_eq!(visit(&app, "/"), 200);
    (0..1_001).for_each(|_| assert_eq!(visit(&app, "/missing"), 404));
    logged.none();
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
