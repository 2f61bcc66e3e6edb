// What the examples of the cookbook are tested with. A page includes it in hidden lines.

/// Sends a request from an address, and returns the response.
#[allow(dead_code)]
async fn send(app: &axum::Router, from: &str, request: axum::http::request::Builder, body: &str) -> axum::response::Response {
    let peer = std::net::SocketAddr::new(from.parse().expect("an address"), 49_152);
    let request = request.extension(axum::extract::ConnectInfo(peer)).body(axum::body::Body::from(body.to_owned()));
    let Ok(response) = tower::ServiceExt::oneshot(app.clone(), request.expect("a valid request")).await;
    response
}

/// Sends a GET request without a body, and returns the status.
#[allow(dead_code)]
async fn get_status(app: &axum::Router, from: &str, path: &str) -> u16 {
    send(app, from, axum::http::Request::get(path), "").await.status().as_u16()
}
