//! A small app behind a layer, and requests to it.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::any;
use futures::FutureExt;
use http::{HeaderName, HeaderValue, Method, Request};
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_config::Config;
use tower::ServiceExt;

pub(crate) const ONE: Quota = Quota::per_hour(1);

pub(crate) fn layer(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), policy)
}

/// An app that serves every path.
pub(crate) fn app(policy: Policy) -> Router {
    Router::new().fallback(any(|| async {})).layer(layer(policy))
}

pub(crate) fn list<const N: usize>(entries: [&str; N]) -> AccessList {
    AccessList::parse(entries).expect("the entries are right")
}

pub(crate) fn get(uri: &str) -> Request<Body> {
    Request::builder().uri(uri).body(Body::empty()).expect("a request")
}

pub(crate) fn method(method: Method) -> Request<Body> {
    let mut request = get("/");
    *request.method_mut() = method;
    request
}

pub(crate) fn from(peer: &str) -> Request<Body> {
    by(get("/"), peer)
}

pub(crate) fn by(mut request: Request<Body>, peer: &str) -> Request<Body> {
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().expect("an address"), 4711)));
    request
}

pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    let value = HeaderValue::from_str(value).expect("a header value");
    request.headers_mut().append(HeaderName::from_static(name), value);
    request
}

#[track_caller]
pub(crate) fn expect(app: &Router, request: Request<Body>, status: u16) {
    let what = format!("{} {}", request.method(), request.uri());
    let response = app.clone().oneshot(request).now_or_never().expect("an answer at once").expect("a response");
    assert_eq!(response.status(), status, "{what}");
}

/// Why a layer is not built with a policy.
pub(crate) fn refusal(policy: Policy) -> Option<String> {
    let error = RateLimitLayer::try_new(MemoryStore::new(), policy).err()?;
    assert!(error.is_invalid(), "{error}");
    Some(error.to_string())
}

/// Reads a file with one policy, which has these lines from the fifth on.
pub(crate) fn file(lines: &str) -> Result<Policy, String> {
    let text = format!("[[policy]]\nname = \"p\"\nlimit = 1\nwindow = \"1h\"\n{lines}\n");
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    Ok(config.policies()[0].clone())
}
