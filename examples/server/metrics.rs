//! The metrics that operators scrape, with the feature `metrics`.

use std::future::ready;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::routing::{MethodRouter, get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::BoxError;

/// In seconds: from a decision in memory to one that takes the whole budget.
const BUCKETS: [f64; 9] = [0.000_01, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.01, 0.025, 0.05, 0.1];

const UPKEEP: Duration = Duration::from_secs(5);

/// Installs the recorder, and returns the route that renders what it has recorded.
pub(crate) fn record() -> Result<MethodRouter, BoxError> {
    let seconds = Matcher::Full("tollgate_decision_seconds".to_owned());
    let recorder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &BUCKETS)?.install_recorder()?;
    let upkept = recorder.clone();
    tokio::spawn(async move {
        // Otherwise times accumulate until the next scrape.
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkept.run_upkeep();
        }
    });
    let show = move || ready(([(CONTENT_TYPE, "text/plain; version=0.0.4")], recorder.render()));
    Ok(get(show))
}
