//! The limit of settlements in flight to a server.
//!
//! Settlements are sent whether or not anybody waits for them, and wait through outages; without a
//! limit they would fill the memory. Each holds a place from when it is queued until it completes.
//! One that finds no place is not sent: it fails with an error, and its units stay taken.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::core::error::Kind;
use crate::core::{Error, Lines};

/// The limit of settlements in flight to one server, over all its lanes.
const MOST_SETTLEMENTS: usize = 4_096;

/// The places for settlements in flight to a server.
#[derive(Debug)]
pub(super) struct Settling {
    /// One permit for each place.
    places: Arc<Semaphore>,
    /// Limits how often it is logged that there is no place.
    unsent: Lines,
}

impl Settling {
    /// All places are free.
    pub(super) fn new() -> Self {
        let places = Arc::new(Semaphore::new(MOST_SETTLEMENTS));
        Self { places, unsent: Lines::new() }
    }

    /// Takes a place, which is free again when the permit is dropped. Never waits.
    ///
    /// # Errors
    ///
    /// If too many settlements are in flight.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            self.unsent.log("", |more| {
                tracing::warn!(
                    code = "settlement_unsent",
                    more,
                    "a settlement was not sent: too many are on their way"
                );
            });
            Error::new(Kind::Crowd, "too many settlements are on their way")
        })
    }
}
