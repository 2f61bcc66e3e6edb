//! The hybrid store and its settings.
//!
//! This is the public face of the module. A request goes to the balances first; what they do not cover is decided by
//! the inner store. Settlements are distinguished by the receipt's store: what was admitted here, and what the inner
//! store took.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::admit::admit;
use super::change::{adjust, settle, settle_there};
use super::charge::close;
use super::direct::decide_there;
use super::shared::SharedBalances;
use crate::core::{Error, Requirement};
use crate::store::around::{settle_each, with_refunds, without_outcomes};
use crate::store::{
    Answer, Applied, Ask, AskMode, Capabilities, Change, Check, Counter, Decided, Receipt, Settlement, Settling, Store,
};

/// How often a key in use is charged and looked at, unless another tick is set.
const DEFAULT_TICK: Duration = Duration::from_millis(100);
/// The longest tick that can be set.
const LONGEST_TICK: Duration = Duration::from_secs(60);
/// The largest debt of a key, unless another allowance is set.
const DEFAULT_ALLOWANCE: u64 = 10;
/// Keys that are kept, unless another capacity is set.
const DEFAULT_CAPACITY: usize = 10_000;

/// A store for processes far from the inner one: it admits at once, counts, and charges the inner store at each tick.
///
/// **The bound**: all processes together admit at most (processes − 1) × allowance units more than the quota allows in
/// any window (for a bucket, in any interval); one process alone never admits more than the quota. Charges by handlers
/// and changes by hand are not admissions, and may exceed the limit as [`Change::Charge`] says; they are sent at once,
/// and reduce what this process admits from then on.
///
/// **Ticks**: at each tick, every key in use is charged for what was admitted since the last one, and its counter is
/// looked at. Until the next look this process may admit what remains, but no more than the allowance. The balance may
/// become negative; then nothing is admitted until the debt is repaid.
///
/// **The allowance**: stores keep a debt of at most one more capacity, so (processes − 1) × allowance has to be less
/// than the capacity. On the other hand, the allowance should cover what one process admits for a key during a tick and
/// a round trip, as requests beyond it wait for the inner store.
///
/// The inner store decides the first request of a key, requests that cost more than may be admitted, reserves, leaky
/// buckets and looks, after the debts of their keys were charged; both within its [budget](crate::store::Capabilities::budget). If it
/// is unavailable, its errors are returned once the allowance is used up. `remaining` is what the last look returned,
/// less what was admitted here since.
///
/// **Lost replies**: a charge without a reply within the budget (500 ms, if there is none) is sent once more, after the
/// inner store has replied to a look, and never a third time. So each unit counts at most once more than it was used,
/// and is not counted only if both charges failed: in one outage that is at most an allowance for each key. What the
/// store cuts from a charge is no debt; refunds are counted against that first.
///
/// **Refunds** of units that were not charged yet lower the debt. Refunds of units in the last 16 charges of a key go
/// to the inner store; units of earlier charges, and of those lost twice, are not refunded. While a key is reset,
/// nothing is admitted here, and units taken before the reset are not refunded after it. A reset by another process is
/// not noticed.
///
/// **Busy keys**: while the inner store decides a request of a key, nothing is admitted here for that key, and requests
/// that come meanwhile are decided by the inner store as well. So a key with more than one request a round trip in a
/// process stays with the inner store once it is there: this store is for many keys with few requests each.
///
/// Near Redis, prefer a [`LeaseStore`](crate::LeaseStore), which is exact. Needs a tokio runtime: outside of one, the
/// inner store decides everything.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{HybridStore, MemoryStore};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let store = HybridStore::builder(MemoryStore::new()).tick(Duration::from_millis(200)).allowance(50).build()?;
/// assert!(HybridStore::builder(store.clone()).allowance(0).build().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HybridStore {
    /// What clones share.
    shared: Arc<SharedBalances>,
}

/// Settings of a [`HybridStore`]: its tick, its allowance, and how many keys it keeps.
///
/// # Examples
///
/// ```
/// use tollgate::{HybridStore, MemoryStore};
///
/// let settings = HybridStore::builder(MemoryStore::new()).allowance(20).capacity(1_000);
/// assert!(settings.build().is_ok());
/// ```
#[must_use]
pub struct HybridStoreBuilder {
    inner: Arc<dyn Store>,
    tick: Duration,
    allowance: u64,
    capacity: usize,
}

impl HybridStore {
    /// Returns settings of a store that admits before it charges `inner`: a tick of 100 ms, an allowance of 10 units,
    /// and 10,000 keys.
    pub fn builder(inner: impl Store) -> HybridStoreBuilder {
        let inner = Arc::new(inner);
        HybridStoreBuilder { inner, tick: DEFAULT_TICK, allowance: DEFAULT_ALLOWANCE, capacity: DEFAULT_CAPACITY }
    }

    /// Charges all debts; from then on the inner store decides every request.
    ///
    /// Dropping the last clone loses no debt either: it is charged at the next tick, if the runtime still runs then.
    ///
    /// # Errors
    ///
    /// If the inner store could not be charged. Call it again to retry.
    ///
    /// # Cancellation
    ///
    /// Charges in flight still arrive if the future is dropped. Call it again to charge the rest.
    pub async fn close(&self) -> Result<(), Error> {
        close(&self.shared).await
    }
}

impl HybridStoreBuilder {
    /// Sets how often a key in use is charged and looked at, instead of every 100 ms.
    ///
    /// It is more than 0 and at most 60 s, else [`build`](Self::build) returns an error. What was looked at 10 ticks
    /// ago is no longer relied on.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{HybridStore, MemoryStore};
    ///
    /// assert!(HybridStore::builder(MemoryStore::new()).tick(Duration::from_secs(1)).build().is_ok());
    /// assert!(HybridStore::builder(MemoryStore::new()).tick(Duration::ZERO).build().is_err());
    /// ```
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick, ..self }
    }

    /// Sets the largest debt of a key in this process, at least 1 unit, instead of 10.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HybridStore, MemoryStore};
    ///
    /// assert!(HybridStore::builder(MemoryStore::new()).allowance(50).build().is_ok());
    /// assert!(HybridStore::builder(MemoryStore::new()).allowance(0).build().is_err());
    /// ```
    pub fn allowance(self, units: u64) -> Self {
        Self { allowance: units, ..self }
    }

    /// Sets how many keys are kept at most, instead of 10,000; 0 is taken as 1. All others are
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
            return Err(Error::invalid("an allowance of 0 admits nothing before it is charged: give at least 1"));
        }
        if self.tick.is_zero() || self.tick > LONGEST_TICK {
            let text =
                format!("a tick of {:?} is not allowed: give more than 0 and at most {LONGEST_TICK:?}", self.tick);
            return Err(Error::invalid(text));
        }
        let shared = SharedBalances::new(self.inner, self.tick, self.allowance, self.capacity);
        Ok(HybridStore { shared: Arc::new(shared) })
    }
}

impl Store for HybridStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        if ask.mode == AskMode::Probe {
            return decide_there(&self.shared, checks, ask);
        }
        match admit(&self.shared, checks) {
            Some(decided) => Answer::Ready(Ok(decided)),
            // Units that the inner store refuses may be left here.
            None => decide_there(&self.shared, checks, ask.mode(AskMode::Normal)),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        without_outcomes(if receipt.store() == self.shared.id {
            settle_each(&receipt, changes, |before, taken, change| settle(&self.shared, before, taken, change))
        } else {
            settle_there(&self.shared, receipt, changes)
        })
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        adjust(&self.shared, counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        with_refunds(&*self.shared.inner, requirements)
    }
}

impl fmt::Debug for HybridStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HybridStore")
            .field("tick", &self.shared.tick)
            .field("allowance", &self.shared.allowance)
            .finish_non_exhaustive()
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
