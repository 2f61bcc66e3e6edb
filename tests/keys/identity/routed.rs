//! Parameters of the route, in axum's own router.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use http_body_util::BodyExt;
use tollgate::key;
use tower::ServiceExt;

use super::text;

/// Answers with the key of the route's `id`.
async fn answer(request: Request, _: Next) -> String {
    text(&key::path_param("id"), &request.into_parts().0)
}

async fn asked(app: Router, path: &str) -> String {
    let request = http::Request::builder().uri(path).body(axum::body::Body::empty()).expect("a request");
    let body = app.oneshot(request).await.expect("an answer").into_body();
    String::from_utf8(body.collect().await.expect("a body").to_bytes().to_vec()).expect("a text")
}

#[track_caller]
fn row(app: Router, path: &str, expected: &str) {
    assert_eq!(tokio_test::block_on(asked(app, path)), expected, "{path}");
}

fn route(template: &str) -> Router {
    Router::new().route(template, get(|| async {}))
}

#[test]
fn a_parameter_is_found_and_decoded() {
    let layer = || from_fn(answer);
    row(route("/users/{id}").layer(layer()), "/users/7", "path_param id:7");
    row(route("/users/{id}").route_layer(layer()), "/users/%61%2Fb?id=9", "path_param id:a/b");
    row(route("/users/{id}/posts/{post}").layer(layer()), "/users/7/posts/8", "path_param id:7");
    row(route("/users/{id}").layer(layer()), "/users/%FF", "ambiguous");
    row(route("/v{id}").layer(layer()), "/v7", "path_param id:7");
    row(route("/files/{*id}").layer(layer()), "/files/a/b", "path_param id:a/b");
}

#[test]
fn without_the_parameter_there_is_no_key() {
    let layer = || from_fn(answer);
    row(route("/users/{name}").layer(layer()), "/users/7", "missing");
    row(route("/users/{id}").layer(layer()), "/other", "missing");
    row(route("/users/{id}").fallback(|| async {}).layer(layer()), "/a/b/c", "missing");
}

#[test]
fn nested_routers_count_by_the_whole_path() {
    let inner = || route("/users/{id}").layer(from_fn(answer));
    row(Router::new().nest("/api/v1", inner()), "/api/v1/users/7", "path_param id:7");
    row(Router::new().nest("/{tenant}", inner()), "/api/users/7", "path_param id:7");
    row(Router::new().nest_service("/api", inner()), "/api/users/7", "path_param id:7");
    row(Router::new().nest("/{id}", route("/x").layer(from_fn(answer))), "/7/x", "path_param id:7");
    row(Router::new().nest("/api", route("/{*id}").layer(from_fn(answer))), "/api/a/b", "path_param id:a/b");
    row(Router::new().nest("/api", route("/users/{id}")).layer(from_fn(answer)), "/api/users/7", "path_param id:7");
}
