//! Settings of a lease store.

use std::fmt;
use std::sync::Arc;

use super::store::LeaseStore;
use crate::Error;
use crate::store::{Clock, Store, SystemClock};

const DEFAULT_SHARE: f64 = 0.1;
const DEFAULT_CAPACITY: usize = 10_000;

/// Settings of a [`LeaseStore`].
#[must_use]
pub struct LeaseStoreBuilder {
    pub(super) inner: Arc<dyn Store>,
    pub(super) share: f64,
    pub(super) capacity: usize,
    pub(super) clock: Box<dyn Clock>,
}

impl LeaseStoreBuilder {
    pub(super) fn new(inner: impl Store) -> Self {
        let clock = Box::new(SystemClock::new());
        Self { inner: Arc::new(inner), share: DEFAULT_SHARE, capacity: DEFAULT_CAPACITY, clock }
    }

    /// Sets which share of a limit (of a smaller burst, if there is one) this process holds at most,
    /// more than 0 and up to 1, instead of a tenth.
    pub fn share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Sets for how many hot keys at most leases are taken, instead of 10,000; 0 is taken as 1.
    ///
    /// Keys that become hot when there is no room are decided by the inner store. Memory for the
    /// counts by which a key becomes hot, 64 bytes a place, is taken at once.
    pub fn capacity(self, keys: usize) -> Self {
        Self { capacity: keys.max(1), ..self }
    }

    /// Takes the time by which leases end from another clock, which should run as fast as the inner
    /// store's.
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Builds the store.
    ///
    /// # Errors
    ///
    /// If the share is not more than 0 and at most 1.
    pub fn build(self) -> Result<LeaseStore, Error> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(Error::invalid(format!(
                "a share of {} of the limit cannot be leased: give more than 0 and at most 1",
                self.share
            )));
        }
        Ok(LeaseStore::from_settings(self))
    }
}

impl fmt::Debug for LeaseStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStoreBuilder")
            .field("share", &self.share)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
