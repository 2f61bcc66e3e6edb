//! Parameters of routes: of rewritten paths, of routers without a route, and of values that applications parse.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::routing::get as on_get;
use futures::FutureExt;
use http::{Request, Response};
use tollgate::policy::MissingKey;
use tollgate::{Policy, key};
use tower::util::BoxCloneService;
use tower::{ServiceExt, service_fn};

use super::rig::{self, ONE, get, layer, list, refusal};

type App = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

fn users(policy: Policy) -> Router {
    Router::new().route("/users/{id}", on_get(|| async {})).layer(layer(policy))
}

fn by_id() -> Policy {
    Policy::new("id", ONE).key(key::path_param("id"))
}

/// A router that hands every request on, with another path.
fn rewriting(inner: Router, rewrite: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> App {
    let rewritten = service_fn(move |mut request: Request<Body>| {
        *request.uri_mut() = rewrite(request.uri().path()).parse().expect("a path");
        inner.clone().oneshot(request)
    });
    BoxCloneService::new(Router::new().fallback_service(rewritten).into_service())
}

#[track_caller]
fn expect(app: &App, path: &str, status: u16) {
    let response = app.clone().oneshot(get(path)).now_or_never().expect("an answer at once").expect("a response");
    assert_eq!(response.status(), status, "{path}");
}

#[test]
fn a_parameter_is_that_of_the_path_which_was_routed() {
    let app = rewriting(users(by_id()), |_| "/users/ada".to_owned());
    expect(&app, "/users/junk1", 200);
    expect(&app, "/users/junk2", 429);
    expect(&app, "/users/junk3", 429);
}

#[test]
fn a_parameter_is_found_after_a_prefix_was_cut_off() {
    let app = rewriting(users(by_id()), |path| path.trim_start_matches("/app").to_owned());
    expect(&app, "/app/users/ada", 200);
    expect(&app, "/app/app/users/ada", 429);
    expect(&app, "/app/users/bob", 200);
}

#[test]
fn the_rest_of_a_path_is_that_of_the_path_which_was_routed() {
    let files = Router::new().route("/{*id}", on_get(|| async {})).layer(layer(by_id()));
    let app = rewriting(files, |path| path.rsplit_once("/x").map_or("/", |(_, rest)| rest).to_owned());
    expect(&app, "/junk1/x/a", 200);
    expect(&app, "/junk2/x/a", 429);
}

#[test]
fn a_parameter_of_a_nested_router_is_found() {
    let nested = Router::new().nest("/api/{version}", users(by_id()));
    let app: App = BoxCloneService::new(nested.into_service());
    expect(&app, "/api/1/users/ada", 200);
    expect(&app, "/api/1/users/%61da", 429);
    expect(&app, "/api/1/users/bob", 200);
}

#[test]
fn parameters_of_one_name_that_differ_are_ambiguous() {
    let nested = Router::new().nest_service("/{id}", users(by_id().missing_key(MissingKey::Deny)));
    let app: App = BoxCloneService::new(nested.into_service());
    expect(&app, "/ada/users/bob", 400);
    expect(&app, "/ada/users/ada", 200);
}

#[test]
fn the_first_or_the_last_of_them_counts_where_the_application_takes_it() {
    let nested = |key| Router::new().nest_service("/{id}", users(Policy::new("id", ONE).key(key)));
    for (key, other, same) in [
        (key::path_param("id").first(), "/bob/users/ada", "/ada/users/bob"),
        (key::path_param("id").last(), "/ada/users/bob", "/bob/users/ada"),
    ] {
        let app: App = BoxCloneService::new(nested(key).into_service());
        for (path, status) in [("/ada/users/ada", 200), (other, 200), (same, 429)] {
            expect(&app, path, status);
        }
    }
}

#[test]
fn a_parameter_that_is_no_text_is_ambiguous() {
    let app: App = BoxCloneService::new(users(by_id()).into_service());
    expect(&app, "/users/%ff", 200);
    expect(&app, "/users/%fe", 429);
    expect(&app, "/users/ada", 200);
}

#[test]
fn a_parameter_that_is_no_text_is_refused_by_a_list_that_denies_others() {
    for (route, prefix) in [("/users/{id}", "/users"), ("/{{users}}/{id}", "/{users}")] {
        let app = Router::new().route(route, on_get(|| async {})).layer(layer(by_id().deny(list(["eve"]))));
        for (id, status) in [("eve", 403), ("%ff", 400), ("ada", 200), ("ada", 429)] {
            rig::expect(&app, get(&format!("{prefix}/{id}")), status);
        }
    }
}

/// The parameters that the application has.
async fn seen(Path(parameters): Path<Vec<(String, String)>>) -> String {
    parameters.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[test]
fn a_parameter_is_found_where_its_router_only_hands_on() {
    let layer = || layer(by_id());
    let below = || Router::new().fallback(seen);
    for router in [
        Router::new().nest("/users/{id}", below()).layer(layer()),
        Router::new().nest("/users/{id}", below().layer(layer())),
        Router::new().nest_service("/users/{id}", below()).layer(layer()),
        Router::new().nest_service("/users/{id}", below().layer(layer())),
    ] {
        let app: App = BoxCloneService::new(router.into_service());
        let response = app.clone().oneshot(get("/users/ada/x")).now_or_never().expect("at once").expect("a response");
        let body = to_bytes(response.into_body(), 100).now_or_never().expect("at once").expect("a body");
        assert_eq!(body, "id=ada");
        expect(&app, "/users/%61da/y", 429);
        expect(&app, "/users/bob/x", 200);
    }
}

#[test]
fn a_number_is_one_client_however_it_is_written() {
    let key = key::path_param("id").normalize(|id| match str::from_utf8(id).map(str::parse::<u64>) {
        Ok(Ok(number)) => number.to_string().into_bytes().into(),
        _ => id.into(),
    });
    let app = users(Policy::new("id", ONE).key(key));
    for (id, status) in [("7", 200), ("07", 429), ("+7", 429), ("%2B007", 429), ("8", 200), ("ada", 200), ("ada", 429)]
    {
        rig::expect(&app, get(&format!("/users/{id}")), status);
    }
}

#[test]
fn a_parameter_whose_case_does_not_matter_is_one_client() {
    let key = || key::path_param("id").ignore_case();
    let app = users(Policy::new("id", ONE).key(key()).deny(list(["eve"])));
    for (id, status) in [("ada", 200), ("ADA", 429), ("%41da", 429), ("Eve", 403)] {
        rig::expect(&app, get(&format!("/users/{id}")), status);
    }
    assert!(refusal(Policy::new("id", ONE).key(key()).deny(list(["Eve"]))).is_some(), "it can never match");
}
