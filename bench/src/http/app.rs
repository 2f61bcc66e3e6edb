//! What the sides serve, and under which limit.

use std::time::Duration;

use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use tollgate::store::{RedisStoreBuilder, Store};
use tollgate::{Policy, Quota, RateLimitHeaders, RateLimitLayer, RedisStore, key};

/// The header a request is counted by.
pub(crate) const HEADER: &str = "x-api-key";
/// Units an hour: so few that a key that was used stays in use during a run.
pub(super) const LIMIT: u32 = 1_000;
/// So many at once that no key comes near.
pub(super) const BURST: u32 = 1_000_000;
/// A limit no key comes near, and with units enough for leases.
pub(super) const AMPLE: Quota = Quota::per_minute(1_000_000);
/// One that all requests together do not come near.
pub(super) const AMPLE_ALONE: Quota = Quota::per_minute(30_000_000);
/// A limit that refuses nearly every request over a few keys: what they get back while other sides have their turn is
/// little also beside the requests of a slow machine.
pub(super) const SCANT: Quota = Quota::per_hour(10);

/// A limit no key comes near, whose keys stay in use.
pub(super) fn roomy() -> Quota {
    Quota::per_hour(LIMIT.into()).burst(BURST.into())
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

/// With both header sets, which is the default.
pub(super) fn limited(store: impl Store, quota: Quota) -> Router {
    plain().layer(layer(store, quota))
}

/// Without headers, as most other limiters do by default.
pub(super) fn without_headers(store: impl Store) -> Router {
    plain().layer(layer(store, roomy()).headers(RateLimitHeaders::none()))
}

/// As other limiters: with neither headers nor a handle.
pub(super) fn bare(store: impl Store) -> Router {
    plain().layer(layer(store, roomy()).headers(RateLimitHeaders::none()).without_handle())
}

/// The headers that most other limiters have, and no handle.
pub(super) fn with_legacy_headers(store: impl Store) -> Router {
    plain().layer(layer(store, roomy()).headers(RateLimitHeaders::legacy()).without_handle())
}

/// Keys hold hashes of the header's values, as they do by default: those of all other sides hold the values.
pub(super) fn hashed(store: impl Store) -> Router {
    plain().layer(RateLimitLayer::new(store, Policy::new("api", roomy()).key(key::header(HEADER))))
}

fn layer(store: impl Store, quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(store, Policy::new("api", quota).key(key::header(HEADER).plain()))
}

pub(super) async fn connected(url: String) -> RedisStore {
    patient().connect(&url).await.expect("connected")
}

/// With the default settings, but that a slow machine is no timeout: under callgrind all are.
pub(super) fn patient() -> RedisStoreBuilder {
    RedisStore::builder().timeout(Duration::from_secs(5)).connect_timeout(Duration::from_secs(30))
}
