//! What a store that has several servers reports of the failure of one of them.
//!
//! On a Redis Cluster each primary has a circuit breaker. An error of one primary carries the state
//! of its breaker to the layer, which does not count the failure for the whole store, and knows
//! when the primary is called again and for how long it has failed.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::Error;

/// The state of the breaker of the server that an error is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// How long until the server is called again; zero if its breaker is closed or a probe is due.
    pub(crate) next_probe: Duration,
    /// Since when it has not replied, by tokio's clock; `None` if it has replied since its last
    /// failure.
    pub(crate) failing_since: Option<Instant>,
}

impl Error {
    /// Returns the error as one of a single server of the store.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_one_server(self, outage: Outage) -> Self {
        self.with_detail(outage)
    }

    /// Returns the state of the server's breaker, if the store has one for each of its servers and
    /// the error is of one of them.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.detail().copied()
    }
}
