//! Templates that no request can match, and routes that have two.

use axum::Router;
use axum::routing::any;
use http::Uri;
use tollgate::policy::AccessList;
use tollgate::{Policy, key};

use super::rig::{ONE, expect, file, get, layer, refusal};

#[track_caller]
fn refused(route: &str) {
    let error = refusal(Policy::new("users", ONE).routes(["/", route])).expect(route);
    assert!(error.starts_with(&format!("policy \"users\": route {route:?} can never match: ")), "{error}");
    assert!(error.contains("{id}") && error.contains("{*rest}") && error.contains("slash"), "{error}");
    let error = file(&format!("routes = [\"/\",\n{route:?}]")).expect_err(route);
    assert!(error.starts_with(&format!("line 6: route {route:?} can never match: ")), "{error}");
}

#[test]
fn a_template_of_an_older_axum_is_an_error() {
    refused("/users/:id");
    refused("/files/*path");
}

#[test]
fn a_template_with_an_open_brace_is_an_error() {
    refused("/users/{id");
    refused("/users/id}");
    refused("/users/{}");
    refused("/users/{id}}");
}

#[test]
fn a_template_whose_parameter_does_not_end_its_segment_is_an_error() {
    refused("/users/{id}.png");
    refused("/users/{a}{b}");
    refused("/files/{*path}/edit");
}

#[test]
fn a_template_without_a_leading_slash_is_an_error() {
    refused("users/{id}");
    refused("");
}

#[test]
fn a_template_with_what_no_path_has_is_an_error() {
    refused("/search?q=1");
    refused("/a b");
    refused("/a#b");
}

#[test]
fn a_template_that_axum_takes_is_fine() {
    for route in ["/", "/users/{id}", "/files/{*path}", "/v{version}/a", "/{{braces}}", "/a:b", "/users/"] {
        assert_eq!(refusal(Policy::new("users", ONE).routes([route])), None);
        let _policy = file(&format!("routes = [{route:?}]")).expect(route);
    }
}

#[test]
fn a_list_of_routes_has_templates_that_can_match() {
    let listed = |route: &str| refusal(Policy::new("r", ONE).key(key::route()).allow(AccessList::default().key(route)));
    assert!(listed("/users/:id").expect("it can never match").contains("can never match"));
    assert_eq!(listed("/users/{id}"), None);
}

#[test]
fn a_slash_after_a_nested_service_makes_no_other_route_inside_of_it() {
    let root = |policy: Policy| {
        let inner = Router::new().route("/", any(|uri: Uri| async move { uri.path().to_owned() })).layer(layer(policy));
        Router::new().nest_service("/api", inner)
    };
    for policy in [Policy::new("listed", ONE).routes(["/api/"]), Policy::new("route", ONE).key(key::route())] {
        let app = root(policy);
        expect(&app, get("/api/"), 200);
        expect(&app, get("/api"), 429);
        expect(&app, get("/api//"), 429);
    }
    expect(&root(Policy::new("none", ONE).routes(["/api"])), get("/api"), 200);
}
