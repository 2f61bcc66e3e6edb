//! What a store says of a failure of one of its servers.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::Error;

/// What a store says of a failure of one of its servers, for each of which it has a breaker: the
/// failure says nothing of the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// How long until the server is asked again; zero if it is asked.
    pub(crate) next_probe: Duration,
    /// Since when it has not answered.
    pub(crate) failing_since: Option<Instant>,
}

impl Error {
    /// The error as one of a single server of the store.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_one_server(self, outage: Outage) -> Self {
        self.with_detail(outage)
    }

    /// What its server's breaker knows, if the store has one for each of its servers.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.detail().copied()
    }
}
