//! The layers: the limits of a file, or built-in ones, and the fleet shedder of a file.

use std::time::Duration;

use tollgate::store::Store;
use tollgate::{Error, Quota, RateLimitLayer, key};
use tollgate_config::Config;
use tollgate_shed::{FleetConfig, FleetShedLayer};

use crate::reload::ConfigFile;

/// Returns the layer, and the fleet shedder around it, if the file has one.
pub(crate) fn layers(
    store: impl Store + Clone,
    file: Option<&ConfigFile>,
) -> Result<(RateLimitLayer, Option<FleetShedLayer>), Error> {
    let Some(file) = file else { return Ok((built_in(RateLimitLayer::composite(store)), None)) };
    let config = file.config();
    warn_of_no_policies(config);
    let layer = config.layer(store.clone())?;
    let instances = layer.clone().live().instances();
    let shedder = |fleet: &FleetConfig| Ok(fleet.layer(store)?.instances(instances));
    Ok((layer, file.fleet().map(shedder).transpose()?))
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
