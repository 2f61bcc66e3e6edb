//! Parameters of the route and its template, in axum's own router.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use http_body_util::BodyExt;
use tollgate::key;
use tollgate::{MemoryStore, Policy, RateLimitLayer};
use tower::{ServiceExt, service_fn};

use super::rig::{list, policy, text};

async fn asked(app: Router, path: &str) -> (u16, String) {
    let request = http::Request::builder().uri(path).body(Body::empty()).expect("a request");
    let response = app.oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("a text"))
}

#[track_caller]
fn row(app: Router, path: &str, expected: &str) {
    assert_eq!(tokio_test::block_on(asked(app, path)).1, expected, "{path}");
}

/// A layer's place, where the response is the key of the route's `id`.
async fn id(request: Request, _: Next) -> String {
    text(&key::path_param("id"), &request.into_parts().0)
}

/// The same of the route.
async fn template(request: Request, _: Next) -> String {
    text(&key::route(), &request.into_parts().0)
}

fn route(template: &str) -> Router {
    Router::new().route(template, get(|| async {}))
}

#[test]
fn a_parameter_is_found_and_decoded() {
    for (template, path, expected) in [
        ("/users/{id}", "/users/%61%2Fb?id=9", "path_param id:a/b"),
        ("/users/{id}/posts/{post}", "/users/7/posts/8", "path_param id:7"),
        ("/users/{id}", "/users/%FF", "ambiguous"),
        ("/users/{name}", "/users/7", "missing"),
        ("/users/{id}", "/other", "missing"),
    ] {
        row(route(template).layer(from_fn(id)), path, expected);
    }
    row(route("/users/{id}").route_layer(from_fn(id)), "/users/7", "path_param id:7");
    row(route("/users/{id}").fallback(|| async {}).layer(from_fn(id)), "/a/b/c", "missing");
}

/// A router that hands every request on, with another path.
fn rewriting(inner: Router, rewrite: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> Router {
    Router::new().fallback_service(service_fn(move |mut request: Request| {
        *request.uri_mut() = rewrite(request.uri().path()).parse().expect("a path");
        inner.clone().oneshot(request)
    }))
}

#[test]
fn a_parameter_is_that_of_the_path_which_was_routed() {
    let users = || route("/users/{id}").layer(from_fn(id));
    let nested = |prefix: &str, inner: &str| Router::new().nest(prefix, route(inner).layer(from_fn(id)));
    row(nested("/{tenant}", "/users/{id}"), "/api/users/%61da", "path_param id:ada");
    row(Router::new().nest_service("/api", users()), "/api/users/7", "path_param id:7");
    row(nested("/{id}", "/x"), "/7/x", "path_param id:7");
    row(nested("/api", "/{*id}"), "/api/a/b", "path_param id:a/b");
    row(Router::new().nest("/api", route("/users/{id}")).layer(from_fn(id)), "/api/users/7", "path_param id:7");
    row(rewriting(users(), |_| "/users/ada".to_owned()), "/users/junk", "path_param id:ada");
    let rest = |path: &str| path.rsplit_once("/x").map_or("/", |(_, rest)| rest).to_owned();
    row(rewriting(route("/{*id}").layer(from_fn(id)), rest), "/junk/x/a", "path_param id:a");
    // Where its router only hands on.
    let below = || Router::new().fallback(|| async {});
    for app in [
        Router::new().nest("/users/{id}", below()).layer(from_fn(id)),
        Router::new().nest("/users/{id}", below().layer(from_fn(id))),
        Router::new().nest_service("/users/{id}", below()).layer(from_fn(id)),
        Router::new().nest_service("/users/{id}", below().layer(from_fn(id))),
    ] {
        row(app, "/users/%61da/x", "path_param id:ada");
    }
}

/// What a router responds to requests behind a layer.
#[track_caller]
fn limited(app: impl Fn(RateLimitLayer) -> Router, policy: Policy, rows: &[(&str, u16)]) {
    let app = app(RateLimitLayer::new(MemoryStore::new(), policy));
    for (path, status) in rows {
        assert_eq!(tokio_test::block_on(asked(app.clone(), path)).0, *status, "{path}");
    }
}

#[test]
fn of_parameters_of_one_name_the_one_that_the_application_takes_counts() {
    let nested = |layer| Router::new().nest_service("/{id}", route("/users/{id}").layer(layer));
    let id = || key::path_param("id");
    let last = [("/ada/users/ada", 200), ("/ada/users/bob", 200), ("/bob/users/ada", 429)];
    limited(nested, policy(id()), &last);
    limited(nested, policy(id().last()), &last);
    limited(nested, policy(id().first()), &[("/ada/users/ada", 200), ("/bob/users/ada", 200), ("/ada/users/bob", 429)]);
}

#[test]
fn a_parameter_that_is_no_text_is_refused_by_a_list_that_denies_others() {
    // Of several parameters, axum does not say which is no text.
    for (template, prefix, other) in [("/users/{id}", "/users", ""), ("/{{users}}/{id}/{other}", "/{users}", "/%ff")] {
        let paths = ["eve", "%ff", "ada", "ada"].map(|id| format!("{prefix}/{id}{other}"));
        let rows: Vec<_> = paths.iter().map(String::as_str).zip([403, 400, 200, 429]).collect();
        limited(|layer| route(template).layer(layer), policy(key::path_param("id")).deny(list(["eve"])), &rows);
    }
}

#[test]
fn a_parameter_and_a_route_have_the_keys_that_are_made_by_hand() {
    let key = policy(key::path_param("id")).key_of("A/b").expect("a request has it");
    row(route("/users/{id}").layer(from_fn(id)), "/users/A%2Fb", key.as_str());
    for (value, path) in [("/users/{id}", "/users/7"), ("<unmatched>", "/other")] {
        let key = policy(key::route()).key_of(value).expect("a request has it");
        row(route("/users/{id}").layer(from_fn(template)), path, key.as_str());
    }
}

#[test]
fn a_slash_after_a_nested_service_makes_no_other_route_inside_of_it() {
    let root = |layer| Router::new().nest_service("/api", route("/").layer(layer));
    for policy in [policy(key::global()).routes(["/api/"]), policy(key::route())] {
        limited(root, policy, &[("/api/", 200), ("/api", 429), ("/api//", 429)]);
    }
    limited(root, policy(key::global()).routes(["/api"]), &[("/api", 200), ("/api", 200)]);
}
