//! What all clones of a hybrid store share.

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
use crate::store::{Answer, Applied, Change, Check, Counter, Receipt, Settlement, Settling, Store, StoreId, Taken};

/// What was looked at this many ticks ago says nothing any more.
const FRESH_TICKS: u32 = 10;

/// Refunds and charges on their way at most; more are not sent, and units stay taken.
const MOST_ADJUSTMENTS: usize = 4_096;

/// How long an answer is waited for in the background, if the inner store does not bound that.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The balances of all keys, and the store they are paid to.
pub(super) struct SharedBalances {
    pub(super) id: StoreId,
    pub(super) inner: Arc<dyn Store>,
    pub(super) shards: Shards<Balances>,
    hasher: CounterHasher,
    pub(super) tick: Duration,
    pub(super) allowance: u64,
    pub(super) closed: AtomicBool,
    /// Whose receipts are given for what is charged.
    pub(super) inner_id: OnceLock<StoreId>,
    pub(super) adjusting: Arc<Semaphore>,
    runtime: OnceLock<Runtime>,
}

impl SharedBalances {
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

    pub(super) fn fresh(&self) -> Duration {
        self.tick * FRESH_TICKS
    }

    /// One for all that a decision waits for: what is owed is paid in it, too.
    pub(super) fn budget(&self) -> Option<Duration> {
        self.inner.budget()
    }

    /// Where debts are paid: the runtime asked from, else an earlier one.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        let current = Runtime::try_current().ok();
        if let Some(runtime) = &current {
            let _ = self.runtime.set(runtime.clone());
        }
        current.or_else(|| self.runtime.get().cloned())
    }

    #[inline]
    pub(super) fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }

    /// The balances of all checks, locked.
    pub(super) fn lock_all(&self, checks: &[Check]) -> Locked<'_, Balances> {
        self.shards.lock_all(checks.iter().map(|check| self.hash(&check.counter)))
    }

    /// How often a counter was reset.
    pub(super) fn epoch(&self, counter: &Counter) -> u64 {
        let hash = self.hash(counter);
        self.shards.lock(hash).epoch(hash, counter)
    }

    /// Waits for an answer that nobody else bounds.
    pub(super) async fn bounded<T>(&self, answer: Answer<Result<T, Error>>) -> Result<T, Error> {
        let limit = self.budget().unwrap_or(LONGEST_WAIT);
        let late = |late| Error::new(Kind::Timeout, format!("a debt was not paid in {limit:?}")).with_source(late);
        timeout(limit, answer.wait()).await.map_err(late)?
    }

    /// Gives units back that a charge took in the inner store.
    pub(super) fn refund_charged(&self, counter: &Counter, units: u64, stamp: u64) -> Settling {
        self.refund(Vec::new(), Taken { counter: counter.clone(), units, floor: 0, stamp, slot: 0 }, units)
    }

    /// Gives units back of what the inner store took, and before it others of the same request.
    pub(super) fn refund(&self, before: Vec<Taken>, taken: Taken, units: u64) -> Settling {
        let Some(&store) = self.inner_id.get() else { return Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)])) };
        let change = Settlement { check: before.len(), change: Change::Refund(units) };
        self.inner.settle(Receipt::new(store, before.into_iter().chain([taken])), &[change])
    }
}
