use std::fmt;
use std::sync::Arc;

use super::{LeaseStore, Leases};
use crate::core::Error;
use crate::core::error::built;
use crate::store::{Clock, Store, SystemClock};

const DEFAULT_SHARE: f64 = 0.1;
const DEFAULT_CAPACITY: usize = 10_000;
/// The cells of this many keys, allocated at once, take 1 GiB.
const MAX_CAPACITY: usize = 1 << 24;

/// Settings of a [`LeaseStore`].
///
/// # Examples
///
/// ```
/// use tollgate::store::LeaseStore;
/// use tollgate::MemoryStore;
///
/// let store = LeaseStore::builder(MemoryStore::new()).max_share(0.2).capacity(1_000).build();
/// assert_eq!(store.counts().held(), 0);
/// ```
#[must_use]
pub struct LeaseStoreBuilder {
    inner: Arc<dyn Store>,
    share: f64,
    overdraft: u64,
    capacity: usize,
    clock: Box<dyn Clock>,
}

impl LeaseStoreBuilder {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        let clock = Box::new(SystemClock::new());
        Self { inner, share: DEFAULT_SHARE, overdraft: 0, capacity: DEFAULT_CAPACITY, clock }
    }

    /// Sets the maximum share of a limit (or of a smaller burst) that this process holds, instead of a tenth.
    ///
    /// It is more than 0 and at most 1. The share times the limit is rounded down. If that is less than 4 units,
    /// nothing is leased.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::LeaseStore;
    /// use tollgate::MemoryStore;
    ///
    /// assert!(LeaseStore::builder(MemoryStore::new()).max_share(0.5).try_build().is_ok());
    /// assert!(LeaseStore::builder(MemoryStore::new()).max_share(0.0).try_build().is_err());
    /// ```
    pub fn max_share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Sets the number of units of a key that this process may allow while the next lease is requested, instead of 0.
    ///
    /// See [Overdraft](LeaseStore#overdraft) for its cost and size.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::LeaseStore;
    /// use tollgate::MemoryStore;
    ///
    /// let store = LeaseStore::builder(MemoryStore::new()).overdraft(100).build();
    /// # let _ = store;
    /// ```
    pub fn overdraft(self, units: u64) -> Self {
        Self { overdraft: units, ..self }
    }

    /// Sets the maximum number of hot keys, instead of 10,000: at most 16,777,216, and 0 counts as 1.
    ///
    /// The inner store decides further keys. The counts by which keys become hot take 64 bytes per hot key, allocated
    /// at once.
    pub fn capacity(self, keys: usize) -> Self {
        Self { capacity: keys.max(1), ..self }
    }

    /// Sets the clock by which leases end.
    ///
    /// It should run as fast as the inner store's.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Builds the store.
    ///
    /// # Panics
    ///
    /// If the share is not more than 0 and at most 1, or the capacity is above 16,777,216.
    #[track_caller]
    pub fn build(self) -> LeaseStore {
        built(self.try_build())
    }

    /// Fallible version of [`build`](Self::build).
    ///
    /// # Errors
    ///
    /// If the share is not more than 0 and at most 1, or the capacity is above 16,777,216.
    pub fn try_build(self) -> Result<LeaseStore, Error> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(Error::invalid(format!(
                "a share of {} of the limit cannot be leased: it must be more than 0 and at most 1",
                self.share
            )));
        }
        if self.capacity > MAX_CAPACITY {
            return Err(Error::invalid(format!(
                "a capacity of {} hot keys is not allowed: it must be at most {MAX_CAPACITY}",
                self.capacity
            )));
        }
        let leases = Leases::new(self.inner, self.share, self.overdraft, self.capacity, self.clock);
        Ok(LeaseStore { leases: Arc::new(leases) })
    }
}

impl fmt::Debug for LeaseStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStoreBuilder")
            .field("share", &self.share)
            .field("overdraft", &self.overdraft)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
