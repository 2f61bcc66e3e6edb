//! Settings of a hybrid store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::store::HybridStore;
use crate::Error;
use crate::store::Store;

const DEFAULT_TICK: Duration = Duration::from_millis(100);
const LONGEST_TICK: Duration = Duration::from_secs(60);
const DEFAULT_ALLOWANCE: u64 = 10;
const DEFAULT_CAPACITY: usize = 10_000;

/// Settings of a [`HybridStore`].
#[must_use]
pub struct HybridStoreBuilder {
    pub(super) inner: Arc<dyn Store>,
    pub(super) tick: Duration,
    pub(super) allowance: u64,
    pub(super) capacity: usize,
}

impl HybridStoreBuilder {
    pub(super) fn new(inner: impl Store) -> Self {
        let inner = Arc::new(inner);
        Self { inner, tick: DEFAULT_TICK, allowance: DEFAULT_ALLOWANCE, capacity: DEFAULT_CAPACITY }
    }

    /// Sets how often a key in use is paid for and looked at, instead of every 100 ms.
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick, ..self }
    }

    /// Sets how many units of a key this process may owe, instead of 10.
    pub fn allowance(self, units: u64) -> Self {
        Self { allowance: units, ..self }
    }

    /// Sets how many keys are remembered at most, instead of 10,000; 0 is taken as 1. All others are
    /// decided by the inner store.
    pub fn capacity(self, keys: usize) -> Self {
        Self { capacity: keys.max(1), ..self }
    }

    /// Builds the store.
    ///
    /// # Errors
    ///
    /// If the allowance is 0, or the tick is 0 or longer than a minute.
    pub fn build(self) -> Result<HybridStore, Error> {
        if self.allowance == 0 {
            return Err(Error::invalid("an allowance of 0 admits nothing before it is paid: give at least 1"));
        }
        if self.tick.is_zero() || self.tick > LONGEST_TICK {
            let text =
                format!("a tick of {:?} is not allowed: give more than 0 and at most {LONGEST_TICK:?}", self.tick);
            return Err(Error::invalid(text));
        }
        Ok(HybridStore::from_settings(self))
    }
}

impl fmt::Debug for HybridStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HybridStoreBuilder")
            .field("tick", &self.tick)
            .field("allowance", &self.allowance)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
