//! What all clones of a hybrid store share: the balances, the inner store, and where tasks run.
//!
//! Every other file of this module works on [`SharedBalances`]. Parts of the map are locked for a few probes and
//! never across an `await`; the inner store is called without any lock. Refunds come in and go to the inner store
//! under a receipt of its own identity, which is set by the first decision or look.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::balances::Balances;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::map::{CounterHasher, Locked, Shards};
use crate::store::{
    Answer, Applied, Capabilities, Change, Check, Counter, Receipt, Settlement, Settling, Store, StoreId, Taken,
};

/// A look of this many ticks ago is stale.
const FRESH_TICKS: u32 = 10;

/// Refunds and charges on their way at most; more are not sent, and units stay taken.
const MOST_ADJUSTMENTS: usize = 4_096;

/// How long a result is waited for in the background, if the inner store does not bound that.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The balances of all keys, and the store that they are charged to.
pub(super) struct SharedBalances {
    /// What the receipts of requests admitted here carry.
    pub(super) id: StoreId,
    /// The store that is charged.
    pub(super) inner: Arc<dyn Store>,
    /// The balances, by the hash of policy and key.
    pub(super) shards: Shards<Balances>,
    /// The hash of counters.
    hasher: CounterHasher,
    /// How often a key in use is charged and looked at.
    pub(super) tick: Duration,
    /// The largest debt of a key; at least 1.
    pub(super) allowance: u64,
    /// Whether the store has been closed: nothing is admitted here any more.
    pub(super) closed: AtomicBool,
    /// The identity in the inner store's receipts, once there was one.
    pub(super) inner_id: OnceLock<StoreId>,
    /// A permit for each metered charge on its way.
    pub(super) adjusting: Arc<Semaphore>,
    /// The first runtime that a request came from.
    runtime: OnceLock<Runtime>,
}

impl SharedBalances {
    /// Returns shared balances for up to `capacity` keys.
    pub(super) fn new(inner: Arc<dyn Store>, tick: Duration, allowance: u64, capacity: usize) -> Self {
        Self {
            id: StoreId::new(),
            inner,
            shards: Shards::new(capacity, 1, Balances::new),
            hasher: CounterHasher::new(),
            tick,
            allowance,
            closed: AtomicBool::new(false),
            inner_id: OnceLock::new(),
            adjusting: Arc::new(Semaphore::new(MOST_ADJUSTMENTS)),
            runtime: OnceLock::new(),
        }
    }

    /// Returns how long a look may be relied on.
    pub(super) fn fresh(&self) -> Duration {
        self.tick * FRESH_TICKS
    }

    /// Returns the inner store's budget, which bounds all that one decision waits for: charging debts
    /// included.
    pub(super) fn budget(&self) -> Option<Duration> {
        Capabilities::of(&*self.inner).budget
    }

    /// Returns the runtime to charge in: the current one, else the first that a request came from; `None` before
    /// there was any.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        let current = Runtime::try_current().ok();
        if let Some(runtime) = &current {
            let _ = self.runtime.set(runtime.clone());
        }
        current.or_else(|| self.runtime.get().cloned())
    }

    /// Returns the hash of policy and key.
    #[inline]
    pub(super) fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }

    /// The balances of all checks, locked.
    pub(super) fn lock_all(&self, checks: &[Check]) -> Locked<'_, Balances> {
        self.shards.lock_all(checks.iter().map(|check| self.hash(&check.counter)))
    }

    /// Returns how often a counter was reset.
    pub(super) fn epoch(&self, counter: &Counter) -> u64 {
        let hash = self.hash(counter);
        self.shards.lock(hash).epoch(hash, counter)
    }

    /// Waits for a result, for the inner store's budget at most, or [`LONGEST_WAIT`] if it has none.
    pub(super) async fn bounded<T>(&self, answer: Answer<Result<T, Error>>) -> Result<T, Error> {
        let limit = self.budget().unwrap_or(LONGEST_WAIT);
        let late = |late| Error::new(Kind::Timeout, format!("a debt was not charged in {limit:?}")).with_source(late);
        timeout(limit, answer.wait()).await.map_err(late)?
    }

    /// Refunds units that a charge took in the inner store.
    pub(super) fn refund_charged(&self, counter: &Counter, units: u64, stamp: u64) -> Settling {
        self.refund(Vec::new(), Taken::new(counter.clone(), units, stamp), units)
    }

    /// Refunds units in the inner store of which a request took others `before`; nothing while its identity is
    /// unknown.
    pub(super) fn refund(&self, before: Vec<Taken>, taken: Taken, units: u64) -> Settling {
        let Some(&store) = self.inner_id.get() else { return Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)])) };
        let change = Settlement::new(before.len(), Change::Refund(units));
        self.inner.settle(Receipt::new(store, before.into_iter().chain([taken])), &[change])
    }
}
