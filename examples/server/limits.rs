//! The layer: the limits of a file, or built-in ones.

use std::time::Duration;

use tollgate::config::Config;
use tollgate::{Error, Policy, Quota, RateLimitLayer, key};

/// A composite of three: few requests an address, so that two hands full of them show a refusal.
pub(crate) fn built_in(layer: RateLimitLayer) -> RateLimitLayer {
    layer
        .ip(Quota::per_minute(10))
        .user(Quota::per_hour(1_000).burst(50), key::header("x-api-key"))
        .route(Quota::fixed_window(100, Duration::from_secs(1)))
}

pub(crate) fn of_file(layer: RateLimitLayer, config: Config) -> Result<RateLimitLayer, Error> {
    let server = config.server().clone();
    let layer = layer.client(server.client().clone()).on_failure(server.on_failure());
    let layer = layer.allow_for(server.allow_for()).instances(server.instances());
    layer.try_policies(policies(config))
}

pub(crate) fn policies(config: Config) -> Vec<Policy> {
    if config.policies().is_empty() {
        tracing::warn!("the config file has no policies: nothing is limited");
    }
    config.into_policies()
}
