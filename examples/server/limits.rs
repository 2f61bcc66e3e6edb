//! The layer: the limits of a file, or built-in ones.

use std::time::Duration;

use tollgate::store::Store;
use tollgate::{Error, Quota, RateLimitLayer, key};
use tollgate_config::Config;

pub(crate) fn layer(store: impl Store, config: Option<&Config>) -> Result<RateLimitLayer, Error> {
    let Some(config) = config else { return Ok(built_in(RateLimitLayer::composite(store))) };
    warn_of_no_policies(config);
    config.layer(store)
}

/// Three policies, with few requests per address, so that a dozen of them show a refusal.
fn built_in(layer: RateLimitLayer) -> RateLimitLayer {
    layer
        .ip(Quota::per_minute(10))
        .user(Quota::per_hour(1_000).burst(50), key::header("x-api-key"))
        .route(Quota::fixed_window(100, Duration::from_secs(1)))
}

pub(crate) fn warn_of_no_policies(config: &Config) {
    if config.policies().is_empty() {
        tracing::warn!("the config file has no policies: nothing is limited");
    }
}
