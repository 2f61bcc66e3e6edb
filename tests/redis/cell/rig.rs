//! Servers with the module, and what is asked of them.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, Response};
use tollgate::store::{Ask, Store, StoreDecision};
use tollgate::{Error, Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_redis_cell::RedisCellStore;
use tower::ServiceExt;

use super::module::module;
use crate::support::checks::check;
use crate::support::server::RedisServer;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Three at once, and then one every 20 minutes: nothing comes back while a test runs.
pub(crate) const THREE: Quota = Quota::token_bucket(3, HOUR);

pub(crate) fn server() -> RedisServer {
    let path = module().to_str().expect("the folder of the tests has a plain name");
    RedisServer::start_with_settings(&["--loadmodule", path])
}

/// A store whose decisions may wait longer than a busy machine lets them.
pub(crate) async fn store(server: &RedisServer) -> RedisCellStore {
    let settings = RedisStore::builder().timeout(Duration::from_secs(5)).connect_timeout(Duration::from_secs(5));
    let redis = settings.connect(&server.url()).await.expect("the server is up");
    RedisCellStore::connect(redis).await.expect("the server has the module")
}

pub(crate) async fn take(store: &RedisCellStore, key: &str, cost: u64) -> Result<StoreDecision, Error> {
    store.decide(&[check(key, THREE, cost)], Ask::default()).wait().await
}

/// Counts by the header `x-user`.
pub(crate) fn by_user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user").plain())
}

pub(crate) async fn app(server: &RedisServer, policy: Policy) -> Router {
    let layer = RateLimitLayer::new(store(server).await, policy).expose_decisions();
    Router::new().route("/", get(async || "hello")).layer(layer)
}

pub(crate) async fn send(app: &Router, user: &str) -> Response<Body> {
    let request = Request::get("/").header("x-user", user).body(Body::empty()).expect("the request is right");
    app.clone().oneshot(request).await.expect("a router does not fail")
}

#[track_caller]
pub(crate) fn line<'a, B>(response: &'a Response<B>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("it is ASCII"))
}
