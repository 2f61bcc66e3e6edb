//! Policies whose routes do not match: TG002.

use axum::Router;
use axum::routing::get;
use tollgate::{Policy, RateLimitLayer, key};
use tower::Layer;

use super::{Logged, MANY, app, is_quiet, layer, pages, send, to, warns};

fn login(name: &str, route: &'static str) -> Policy {
    Policy::new(name, MANY).routes([route])
}

fn on(route: &'static str) -> RateLimitLayer {
    layer([login("login", route)])
}

fn by_route() -> Policy {
    Policy::new("route", MANY).key(key::route())
}

/// The routes with a layer around the router.
fn around(layer: &RateLimitLayer) -> Router {
    Router::new().fallback_service(layer.layer(pages()))
}

#[test]
fn a_policy_whose_route_or_key_by_route_never_matches_is_one_warning() {
    let nested = Router::new().nest("/api", app(&on("/login")));
    let of_nested = ["route=\"/login\"", "matched=\"/api/login\"", "inside Router::nest"];
    let of_around = ["route=\"/login\"", "no route has matched", "Router::layer"];
    let of_key = ["policy=\"route\"", "all such requests share one counter"];
    let pair = Policy::new("route", MANY).key((key::client_ip(), key::route()));
    for (app, before, last, texts) in [
        (nested, vec![to("/api")], to("/api/login"), &of_nested[..]),
        (around(&on("/login")), vec![to("/")], to("/login"), &of_around),
        (app(&on("/users/42")), vec![to("/users/7")], to("/users/42"), &["matched=\"/users/{id}\"", "when(...)"]),
        (around(&layer([by_route()])), vec![], to("/users/7"), &of_key),
        (around(&layer([pair])), vec![], to("/users/7"), &of_key),
    ] {
        warns(&app, &before, &last, "TG002", texts);
    }
}

/// Paths, and the statuses of the responses.
type Requests<'a> = &'a [(&'a str, u16)];

#[test]
fn routes_that_match_or_that_are_not_there_warn_of_nothing() {
    let inner = Router::new().route("/login", get(|| async {}));
    let all = layer([Policy::new("login", MANY).routes(["/login", "/users/{id}", "/api/login"])]);
    let matching = pages().nest("/api", inner).layer(all);
    let only_root = Router::new().route("/", get(|| async {})).layer(on("/login"));
    // Another policy names the nested route by its whole template.
    let both = layer([login("login", "/login"), login("api-login", "/api/login")]);
    let page = || Router::new().route("/login", get(|| async {})).layer(both.clone());
    let rows: [(&str, Router, Requests<'_>); 5] = [
        ("matching", matching, &[("/login", 200), ("/users/7", 200), ("/api/login", 200), ("/nothing", 404)]),
        ("a path that clients try", only_root, &[("/", 200), ("/login", 404)]),
        ("a whole template", page().nest("/api", page()), &[("/api/login", 200), ("/login", 200)]),
        ("a key by route", app(&layer([by_route()])), &[("/", 200), ("/missing", 404)]),
        ("no routes", around(&layer([Policy::new("all", MANY)])), &[("/login", 200)]),
    ];
    for (what, app, requests) in rows {
        is_quiet(what, &app, &requests.iter().map(|(path, status)| (to(path), *status)).collect::<Vec<_>>());
    }
}

#[test]
fn policies_that_replace_others_may_match() {
    let (logged, layer) = (Logged::start(), on("/login"));
    let nested = Router::new().nest("/api", app(&layer));
    send(&nested, to("/api/login"));
    layer.clone().live().replace_policies([login("login", "/api/login")]).expect("it can match");
    logged.only("TG002", &["matched=\"/api/login\""], || send(&nested, to("/api/login")));
}
