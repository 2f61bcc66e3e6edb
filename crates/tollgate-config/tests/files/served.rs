//! Requests to a service that a file limits.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use axum::routing::any;
use axum::{Router, http::HeaderMap};
use http::{Request, StatusCode};
use tollgate::response::ActualCost;
use tollgate::{MemoryStore, RateLimitLayer};
use tollgate_config::Config;
use tower::ServiceExt;

pub(crate) fn limited(file: &str) -> Router {
    let config = Config::from_toml(file).unwrap_or_else(|error| panic!("{error:#}\n{file}"));
    Router::new()
        .route("/users/{id}", any(handler))
        .route("/login", any(handler))
        .route("/hang", any(std::future::pending::<()>))
        .fallback(handler)
        .layer(RateLimitLayer::composite(MemoryStore::new()).policies(config.into_policies()))
}

/// Answers with the status in the header `want`, at the real cost in `real`.
async fn handler(headers: HeaderMap) -> Response {
    let number = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    let mut response = Response::new(Body::empty());
    let status = number("want").and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    *response.status_mut() = status.unwrap_or_default();
    if let Some(units) = number("real") {
        response.extensions_mut().insert(ActualCost(units));
    }
    response
}

/// A request written as `METHOD /path name:value ... @address`; the method may be left out.
pub(crate) fn request(text: &str) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let mut peer = "203.0.113.1";
    for part in text.split_whitespace() {
        if part.starts_with('/') {
            *request.uri_mut() = part.parse().expect("it is a path");
        } else if let Some(address) = part.strip_prefix('@') {
            peer = address;
        } else if let Some((name, value)) = part.split_once(':') {
            let name = http::HeaderName::from_bytes(name.as_bytes()).expect("it is a name");
            request.headers_mut().append(name, value.replace('+', " ").parse().expect("it is a value"));
        } else {
            *request.method_mut() = part.parse().expect("it is a method");
        }
    }
    let peer = SocketAddr::new(peer.parse().expect("it is an address"), 4711);
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

pub(crate) async fn send(app: &Router, text: &str) -> Response {
    app.clone().oneshot(request(text)).await.unwrap_or_else(|never| match never {})
}

/// The statuses that answer these requests, one after the other.
pub(crate) async fn statuses(file: &str, requests: &[&str]) -> Vec<u16> {
    let app = limited(file);
    let mut statuses = Vec::new();
    for text in requests {
        statuses.push(send(&app, text).await.status().as_u16());
    }
    statuses
}
