//! The limit of settlements in flight to a server.
//!
//! Settlements are sent whether or not anybody waits for them, and wait through outages; without a
//! limit they would fill the memory. Each holds a place from when it is queued until it completes.
//! One that finds no place is not sent: it fails with an error, its units stay taken, and the log
//! says how many, at most once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::core::Error;
use crate::core::error::Kind;

/// The limit of settlements in flight to one server, over all its lanes.
const MOST_SETTLEMENTS: usize = 4_096;

/// The places for settlements in flight to a server.
#[derive(Debug)]
pub(super) struct Settling {
    /// One permit for each place.
    places: Arc<Semaphore>,
    /// Settlements without a place that are not in the log yet.
    unsent: AtomicU64,
    /// The second, of the Unix time, in which some were last logged.
    logged: AtomicU64,
}

impl Settling {
    /// All places are free.
    pub(super) fn new() -> Self {
        let places = Arc::new(Semaphore::new(MOST_SETTLEMENTS));
        Self { places, unsent: AtomicU64::new(0), logged: AtomicU64::new(0) }
    }

    /// Takes a place, which is free again when the permit is dropped. Never waits.
    ///
    /// # Errors
    ///
    /// If too many settlements are in flight.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        if place.is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
        if self.unsent.load(Ordering::Relaxed) > 0 {
            self.log();
        }
        place.map_err(|_| Error::new(Kind::Crowd, "too many settlements are on their way"))
    }

    /// Logs how many found no place, at most once a second. The rest is logged with a later
    /// settlement.
    #[cold]
    fn log(&self) {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.logged.swap(second, Ordering::Relaxed) != second {
            let settlements = self.unsent.swap(0, Ordering::Relaxed);
            tracing::warn!(settlements, "settlements were not sent: too many are on their way");
        }
    }
}
