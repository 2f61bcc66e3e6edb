//! The server under test: one limit of all its requests, by ratios.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use axum::routing::get;
use tollgate::{Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_ratio::RatioStore;

use crate::app::{BLOCKS, FREE, SHORT, is_critical, listen, tell_source};

pub(super) const TICK: Duration = Duration::from_millis(200);
/// How long the last ratio holds.
pub(super) const LIFE: Duration = Duration::from_millis(1_400);
/// Without ratios this process has a share.
pub(super) const INSTANCES: NonZeroU32 = NonZeroU32::new(2).expect("it is not zero");

/// Of all requests, in a second: about half of those that come.
pub(super) const LIMIT: u32 = 350;
/// It bounds what is admitted before a ratio is known, and in a tick: of a handler that blocks, several come at once.
pub(super) const BURST: u32 = 350;

/// Serves in the background; returns the address.
pub(super) async fn serve(tally: RedisStore) -> SocketAddr {
    let store = RatioStore::builder(tally).tick(TICK).ttl(LIFE).instances(INSTANCES).build();
    let quota = Quota::per_second(LIMIT.into()).burst(BURST.into());
    let policy = Policy::new("all", quota).key(key::global()).reserve(0.2, is_critical);
    let limited = Router::new()
        .route("/", get(async || "hello\n"))
        .route(BLOCKS, get(async || thread::sleep(SHORT)))
        .layer(RateLimitLayer::new(store, policy).expose_decisions())
        .layer(map_response(tell_source));
    listen(limited.route(FREE, get(async || "ok\n"))).await
}
