//! What the sides serve, and under which limit.

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tollgate::store::{RedisStoreBuilder, Store};
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer, RedisStore, key};

use crate::server;

/// The header a request is counted by.
pub(crate) const HEADER: &str = "x-api-key";
/// Units an hour: so few that a key that was used stays in use during a run.
pub(super) const LIMIT: u32 = 1_000;
/// A limit no key comes near, and with units enough for leases.
pub(super) const AMPLE: Quota = Quota::per_minute(1_000_000);
/// One that all requests together do not come near.
pub(super) const AMPLE_ALONE: Quota = Quota::per_minute(30_000_000);
/// Units at once of [`SCANT`].
pub(super) const FEW_UNITS: u32 = 10;
/// A limit that refuses nearly every request over a few keys: what they get back while other sides have their turn is
/// little also beside the requests of a slow machine.
pub(super) const SCANT: Quota = Quota::per_hour(FEW_UNITS as u64);

/// A limit that a key comes near only if it is to, whose keys stay in use.
pub(super) fn roomy(burst: u32) -> Quota {
    Quota::per_hour(LIMIT.into()).burst(burst.into())
}

/// What every side serves.
pub(super) fn plain() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// No limit, but what a limit sends.
pub(super) fn with_headers() -> Router {
    plain().layer(map_response(async |mut response: Response| {
        let headers = [
            ("ratelimit-policy", "\"api\";q=1000000;w=60"),
            ("ratelimit", "\"api\";r=999999;t=60"),
            ("x-ratelimit-limit", "1000000"),
            ("x-ratelimit-remaining", "999999"),
            ("x-ratelimit-reset", "1800000000"),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }))
}

/// With both header sets and a handle, which is the default.
pub(super) fn limited(store: impl Store, quota: Quota) -> Router {
    plain().layer(layer(store, quota))
}

/// Without headers, as most other limiters do by default.
pub(super) fn without_headers(store: impl Store, quota: Quota) -> Router {
    plain().layer(layer(store, quota).headers(RateLimitHeaders::none()))
}

/// As other limiters: with neither headers nor a handle.
pub(super) fn bare(store: impl Store, quota: Quota) -> Router {
    plain().layer(layer(store, quota).headers(RateLimitHeaders::none()).without_handle())
}

/// The headers that most other limiters have, and no handle.
pub(super) fn with_legacy_headers(store: impl Store, quota: Quota) -> Router {
    plain().layer(layer(store, quota).headers(RateLimitHeaders::legacy()).without_handle())
}

/// Keys hold hashes of the header's values, as they do by default: those of all other sides hold the values.
pub(super) fn hashed(store: impl Store, quota: Quota) -> Router {
    plain().layer(RateLimitLayer::new(store, Policy::new("api", quota).key(key::header(HEADER))))
}

fn layer(store: impl Store, quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(store, Policy::new("api", quota).key(key::header(HEADER).plain()))
}

pub(super) async fn connected(url: &str) -> RedisStore {
    patient().connect(url).await.expect("connected")
}

/// Over a pool of the application.
pub(super) fn pooled(url: &str) -> RedisStore {
    patient().from_pool(server::pool(url)).expect("the settings are valid")
}

/// From the URLs of all primaries.
pub(super) async fn clustered(urls: &str) -> RedisStore {
    patient().connect_cluster(urls.split(',')).await.expect("connected")
}

/// With the default settings, but that a slow machine is no timeout: under callgrind all are.
pub(super) fn patient() -> RedisStoreBuilder {
    RedisStore::builder().timeout(Duration::from_secs(5)).connect_timeout(Duration::from_secs(30))
}
