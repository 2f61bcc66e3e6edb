//! How many settlements are on their way to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::core::Error;
use crate::core::error::Kind;

/// Settlements on their way to a server at most; more are not sent, and units stay taken.
const MOST_SETTLEMENTS: usize = 4_096;

/// Places for settlements on their way to a server.
#[derive(Debug)]
pub(super) struct Settling {
    places: Arc<Semaphore>,
    /// Settlements without a place that are not in the log yet.
    unsent: AtomicU64,
    /// The second in which some were last logged.
    logged: AtomicU64,
}

impl Settling {
    pub(super) fn new() -> Self {
        let places = Arc::new(Semaphore::new(MOST_SETTLEMENTS));
        Self { places, unsent: AtomicU64::new(0), logged: AtomicU64::new(0) }
    }

    /// A place, kept until it is dropped.
    ///
    /// # Errors
    ///
    /// If too many settlements are on their way.
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

    /// Logs those without a place, but not more than once a second.
    #[cold]
    fn log(&self) {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.logged.swap(second, Ordering::Relaxed) != second {
            let settlements = self.unsent.swap(0, Ordering::Relaxed);
            tracing::warn!(settlements, "settlements were not sent: too many are on their way");
        }
    }
}
