//! An app with every kind of key before it, and requests to it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::Request;
use tollgate::key::{self, KeyExtractor};
use tollgate::policy::MissingKey;
use tollgate::store::Store;
use tollgate::{Policy, Quota, RateLimitLayer};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const QUOTAS: [Quota; 5] = [
    Quota::token_bucket(50, HOUR),
    Quota::fixed_window(50, HOUR),
    Quota::sliding_window(50, HOUR),
    Quota::sliding_log(50, HOUR),
    Quota::leaky_bucket(50, HOUR).queue(0),
];

/// One of every key that reads what clients send.
pub(crate) fn every_key() -> Vec<Box<dyn KeyExtractor>> {
    let behind = || key::client_ip().trusted_proxies(["10.0.0.0/8", "fc00::/7"]);
    vec![
        Box::new(key::client_ip()),
        Box::new(behind()),
        Box::new(behind().forwarded()),
        Box::new(behind().header("x-real-ip")),
        Box::new(key::client_ip().trusted_hops(3)),
        Box::new(key::client_ip().trusted_hops(usize::MAX).forwarded()),
        Box::new(key::peer_ip()),
        Box::new(key::header("x-api-key")),
        Box::new(key::header("x-user").plain()),
        Box::new(key::cookie("sid")),
        Box::new(key::cookie("sid").plain()),
        Box::new(key::bearer()),
        Box::new(key::basic_user()),
        Box::new(key::basic_user().plain()),
        Box::new(key::query("q")),
        Box::new(key::path()),
        Box::new(key::host()),
        Box::new(key::method()),
        Box::new(key::route()),
        Box::new(key::path_param("id")),
        Box::new(key::path_param("rest")),
        Box::new((behind(), key::query("q"), key::header("x-user").plain())),
    ]
}

/// A policy by each key, of all algorithms in turn.
pub(crate) fn every_policy() -> Vec<Policy> {
    let rules = [MissingKey::Share, MissingKey::Skip, MissingKey::Share];
    let keys = every_key().into_iter().zip(QUOTAS.iter().cycle()).zip(rules.iter().cycle());
    let policies = keys.enumerate().map(|(number, ((key, quota), rule))| {
        let key: std::sync::Arc<dyn KeyExtractor> = key.into();
        Policy::new(&format!("p{number}"), *quota).key(key).missing_key(*rule)
    });
    policies.collect()
}

/// An app of a few routes behind a layer.
pub(crate) fn app(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> Router {
    Router::new()
        .route("/", any(|| async { "hello" }))
        .route("/users/{id}", any(|| async { "hello" }))
        .route("/files/{*rest}", any(|| async { "hello" }))
        .layer(RateLimitLayer::composite(store).policies(policies))
}

/// A request from a peer.
pub(crate) fn from(peer: impl Into<IpAddr>, uri: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    *request.uri_mut() = uri.parse().expect("a URI");
    request.extensions_mut().insert(SocketAddr::new(peer.into(), 4711));
    request
}
