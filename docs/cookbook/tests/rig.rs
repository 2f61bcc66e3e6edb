// What the tests of the recipes share. A page includes its test in a hidden line, and the test includes this file.

use axum::http::request::Builder;

/// Sends a request from an address, and returns the response.
#[allow(dead_code)]
async fn send(app: &axum::Router, from: &str, request: Builder, body: &str) -> axum::response::Response {
    let peer = std::net::SocketAddr::new(from.parse().expect("an address"), 49_152);
    let request = request.extension(axum::extract::ConnectInfo(peer)).body(axum::body::Body::from(body.to_owned()));
    let Ok(response) = tower::ServiceExt::oneshot(app.clone(), request.expect("a valid request")).await;
    response
}

/// Sends a request without a body, and returns the status.
#[allow(dead_code)]
async fn status(app: &axum::Router, from: &str, request: Builder) -> u16 {
    send(app, from, request, "").await.status().as_u16()
}

/// A store whose clock stands still until it is advanced.
#[allow(dead_code)]
fn memory(clock: &tollgate::test_util::ManualClock) -> tollgate::MemoryStore {
    tollgate::MemoryStore::builder().clock(clock.clone()).build()
}
