//! The lease store: units held, and how they are returned.
//!
//! Requests try the leases first. The inner store decides the others, and handles adjustments of counters. The store
//! named in a receipt settles it. Dropping the last clone returns all leases at once, without waiting.
//!
//! Invariant: no lock is held while the inner store is called, because it may decide at once and lock a shard again.

mod admit;
mod builder;
mod call;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tokio::sync::Semaphore;

use self::admit::admit;
pub use self::builder::LeaseStoreBuilder;
use self::call::close;
use super::hot_key::Back;
use super::hot_keys::{HotKeys, LeaseCounts};
use crate::core::{Decision, Error, Quota, Requirement};
use crate::store::around::settle_each;
use crate::store::clock::micros;
use crate::store::map::{CounterHasher, Shards};
use crate::store::{
    Ask, AskMode, Capabilities, Change, ChangeResult, Check, Clock, Counter, MaybeFuture, Receipt, ReceiptItem,
    Settlement, Settles, Settling, Store, StoreDecision, StoreId,
};

/// A store that takes units for hot keys in advance, many in one call, and allows requests with them locally.
///
/// **The bound**: every unit was charged in the inner store at most τ = min(1 s, window / 10) earlier than it is spent,
/// and in the same window. So any interval of length *d* allows at most what the quota allows in *d* + τ, and fixed and
/// sliding windows hold exactly.
///
/// **The cost**: for at most τ, units that one process holds are denied to the other processes. Until the reply to the
/// lease call has arrived, they are also denied to other requests of the same process. A crash loses the units held.
/// Units by which a bucket was replenished while they were held unspent are also lost. `remaining` counts the units
/// this process holds and those that were left when it took them, so it is up to τ old.
///
/// **When to use it**: for keys that one process decides many times within τ (a route, a tenant, a global limit),
/// especially where such keys burden one node of a Redis Cluster. Other keys are decided by the inner store, one call
/// each, as without it.
///
/// A key is hot from 8 requests within τ. Leases follow its rate, up to a share of the limit. The next lease is taken
/// in the background before the current one is spent. A request with several checks is allowed locally if leases cover
/// all of them, including checks in shadow mode. Otherwise the inner store decides it as a whole. The inner store
/// always decides peeks, reserves, leaky buckets, and costs larger than the units held.
///
/// # Overdraft
///
/// If the store is far away, granting a lease takes longer than a busy key needs to spend one. With an
/// [overdraft](LeaseStoreBuilder::overdraft), this process still allows requests of such a key while a lease call for
/// it is in flight, until it owes that many units. The lease pays the debt when it arrives.
///
/// - **The bound**: all processes together allow at most (processes × overdraft) units more than without it, in any
///   window (for a bucket, in any interval). The debt of a key is never more than remained when its last lease was
///   granted. Stores keep a debt of at most one more capacity, so processes × overdraft has to be less than the
///   capacity.
/// - **How large**: it should cover the units that this process allows for a key in one round trip to the inner store,
///   or in two round trips if one takes longer than τ. Requests beyond it wait for the inner store.
/// - **Which keys**: those with 8 requests within a second in this process, from their first lease on. When a lease is
///   denied or fails, the debt is [charged](crate::store::Change::Charge), and the inner store decides the key until a
///   lease is granted again. So while the inner store is unavailable, at most an overdraft of each hot key is owed, and
///   further requests get its errors.
/// - **Lost replies**: a charge is sent once, so its units count nowhere if the charge is lost on its way. Units that
///   are owed when the process crashes count nowhere either. A lease call that failed may have charged its units, and
///   these units are then charged again. So they count at most once more than they were used.
/// - **Refunds** of units that are owed lower the debt. Units that a lease paid are refunded in the inner store, if it
///   was one of the last 16 payments of a key that had a request in this process within the last minute. All other
///   overdrawn units are not refunded: those that were charged, or were owed before a reset through this process.
///
/// # Returning
///
/// Unspent units are returned when their key becomes idle and when their lease ends: by a task that runs every 50 ms in
/// the runtime of the first lease, or of a later one if that has ended. A runtime is needed only if the inner store
/// needs one. Without a runtime, units are returned with the next request or peek for their key. A higher limit leaves
/// leases unchanged. A lower one returns them.
///
/// A reset drops the units held of its counter. Until the reset is done, another lease may allow requests. The reset
/// drops that lease, too.
///
/// Clones share leases.
///
/// # Examples
///
/// ```
/// use tollgate::store::LeaseStore;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// let store = LeaseStore::new(MemoryStore::new());
/// let policy = Policy::new("all", Quota::per_second(50_000)).key(key::global());
/// let layer = RateLimitLayer::new(store.clone(), policy);
/// # let _ = layer;
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // When the server has stopped:
/// store.close().await;
/// assert_eq!(store.counts().held(), 0);
/// # });
/// ```
#[derive(Clone)]
pub struct LeaseStore {
    leases: Arc<Leases>,
}

impl LeaseStore {
    /// Leases from `inner` with the default settings.
    pub fn new(inner: impl Store) -> Self {
        Self::builder(inner).build()
    }

    /// Returns a builder of a store that leases from `inner`. Defaults: a share of a tenth, and 10,000 hot keys.
    pub fn builder(inner: impl Store) -> LeaseStoreBuilder {
        LeaseStoreBuilder::new(Arc::new(inner))
    }

    /// Returns the counts of all units leased so far, by all clones.
    pub fn counts(&self) -> LeaseCounts {
        self.leases.counts()
    }

    /// Returns all leases to the inner store, and takes no more: the inner store decides every later request.
    ///
    /// Waits for the lease calls in flight, and for the inner store's reply to a peek at each counter to which units
    /// were returned. Dropping the last clone also returns everything, but without waiting: what the inner store no
    /// longer accepts stays taken. A [`RedisStore`](crate::RedisStore) has at most 4,096 settlements in flight, and
    /// sends none after its runtime has ended.
    ///
    /// # Cancellation
    ///
    /// Once the future was polled, dropping it loses nothing: units held are passed to the inner store within 50 ms,
    /// and leases that arrive later are returned as they arrive. Call it again to wait for them.
    pub async fn close(&self) {
        close(&self.leases).await;
    }
}

/// A reset in progress. Drops the counter's leases again at the end.
struct Forgetting(Arc<Leases>, Counter);

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.0.forget(&self.1);
    }
}

impl Store for LeaseStore {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        if ask.mode == AskMode::Probe {
            return self.leases.inner.decide(checks, ask);
        }
        match admit(&self.leases, checks) {
            Some(decided) => MaybeFuture::Ready(Ok(decided)),
            None if checks.iter().all(|check| check.cost == 0) => self.leases.look(checks, ask),
            None => self.leases.inner.decide(checks, ask),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let settling = if receipt.store() == self.leases.id {
            settle_each(&receipt, changes, |before, taken, change| self.leases.settle(before, taken, change))
        } else {
            self.leases.inner.settle(receipt, changes)
        };
        // The outcome of the inner store lacks the units held here.
        let strip = |applied: ChangeResult| ChangeResult { outcome: None, ..applied };
        settling.map(move |applied| applied.map(|applied| applied.into_iter().map(strip).collect()))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        if change != Change::Reset {
            return self.leases.inner.adjust(counter, change);
        }
        self.leases.forget(counter);
        // Also drops leases taken before the reset arrives, even if the caller does not wait.
        let forgetting = Forgetting(Arc::clone(&self.leases), counter.clone());
        self.leases.inner.adjust(counter, change).map(move |done| {
            drop(forgetting);
            done
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        // Unused units of each policy are refunded.
        let refunding = requirements.iter().map(|one| Requirement { settles: Settles::ByOutcome, ..one.clone() });
        self.leases.inner.capabilities(&refunding.collect::<Vec<_>>())
    }
}

impl fmt::Debug for LeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Includes a permit for the sweep. Further calls are not made.
const MAX_CALLS: u32 = 4_096;

struct Leases {
    id: StoreId,
    inner: Arc<dyn Store>,
    /// Identity in receipts of leases, set by the first lease. Units are returned under it.
    inner_id: OnceLock<StoreId>,
    shards: Shards<HotKeys>,
    hasher: CounterHasher,
    /// A permit for each lease call in flight, and for a sweep. Closed with the store.
    calls: Arc<Semaphore>,
    swept: AtomicBool,
    /// Whether the store was closed. Then leases allow nothing.
    closed: AtomicBool,
    /// Above 0 and at most 1.
    share: f64,
    clock: Box<dyn Clock>,
}

impl Leases {
    fn new(inner: Arc<dyn Store>, share: f64, overdraft: u64, capacity: usize, clock: Box<dyn Clock>) -> Self {
        Self {
            id: StoreId::new(),
            inner,
            inner_id: OnceLock::new(),
            shards: Shards::new(capacity, 1, |room| HotKeys::new(room, overdraft)),
            hasher: CounterHasher::new(),
            calls: Arc::new(Semaphore::new(MAX_CALLS as usize)),
            swept: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            share,
            clock,
        }
    }

    fn now(&self) -> u64 {
        micros(self.clock.now())
    }

    #[inline]
    fn wall(&self, quota: &Quota) -> Option<u64> {
        quota.is_aligned().then(|| micros(self.clock.wall()))
    }

    #[inline]
    fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.hash(counter)
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of an integer below 2^52"
    )]
    fn most(&self, quota: &Quota) -> u64 {
        (quota.limit().min(quota.capacity()) as f64 * self.share) as u64
    }

    fn held(&self, counter: &Counter) -> (u64, u64) {
        let (hash, now, mut backs) = (self.hash(counter), self.now(), Vec::new());
        let held = self.shards.lock(hash).find(hash, counter).map_or((0, 0), |hot| {
            hot.end_lots(now, self.wall(counter.quota()), &mut backs);
            (hot.held(now), hot.owed())
        });
        self.give_back(backs, now);
        held
    }

    /// Locks one shard after the other.
    fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts::default();
        self.shards.each().for_each(|hot_keys| counts += hot_keys.counts);
        counts
    }

    /// Peeks in the inner store, then adds the units held and subtracts the units owed.
    fn look(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let held: SmallVec<[(u64, u64); 4]> = checks.iter().map(|check| self.held(&check.counter)).collect();
        if held.iter().all(|units| *units == (0, 0)) {
            return self.inner.decide(checks, ask);
        }
        // Units held here may allow a request that the inner store denies.
        let looked = self.inner.decide(checks, ask.mode(AskMode::Normal));
        looked.map(move |decided| {
            let StoreDecision { decision, receipt } = decided?;
            let outcomes = decision.outcomes().iter().zip(&held);
            let outcomes = outcomes.map(|(outcome, &(held, owed))| outcome.with_more(held, owed));
            Ok(StoreDecision::new(Decision::new(outcomes, decision.source()), receipt))
        })
    }

    /// Call it without a shard's lock, because it locks shards and calls the inner store.
    fn give_back(&self, backs: Vec<Back>, now: u64) {
        for back in backs {
            let hash = self.hash(back.counter());
            match back {
                Back::Lease(lot, limit) => {
                    let (receipt, left, returned) = lot.into_refund(limit, now);
                    if returned > 0 {
                        let refund = Settlement::new(0, Change::Refund(returned));
                        drop(self.inner.settle(receipt, &[refund]));
                    }
                    let mut hot_keys = self.shards.lock(hash);
                    hot_keys.counts.returned += returned;
                    hot_keys.counts.lost += left - returned;
                }
                Back::OwedUnits(counter, units) => {
                    drop(self.settle_there(&[], &ReceiptItem::new(counter, 0, 0), 0, Change::Charge(units)));
                    let mut hot_keys = self.shards.lock(hash);
                    hot_keys.counts.leased += units;
                    hot_keys.counts.owed -= units;
                }
            }
        }
    }

    fn take(&self, most: usize) -> Vec<Back> {
        let mut backs = Vec::new();
        for mut hot_keys in self.shards.each() {
            for hot in hot_keys.table.iter_mut() {
                if backs.len() >= most {
                    return backs;
                }
                hot.give_up(&mut backs, |_| true);
            }
        }
        backs
    }

    fn forget(&self, counter: &Counter) {
        let hash = self.hash(counter);
        self.shards.lock(hash).forget(hash, counter);
    }

    /// Returns units to their lot if possible. Overdrawn units whose payment is unknown are not refunded.
    fn settle(self: &Arc<Self>, before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> Settling {
        let Change::Refund(units) = change else {
            let (leases, hash) = (Arc::clone(self), self.hash(&taken.counter));
            let stamp = self.shards.lock(hash).stamp_of(hash, taken).unwrap_or(0);
            let count = move |applied: &Vec<ChangeResult>| {
                let units: u64 = applied.iter().map(|applied| applied.units).sum();
                let mut hot_keys = leases.shards.lock(hash);
                hot_keys.counts.leased += units;
                hot_keys.counts.spent += units;
            };
            return self.settle_there(before, taken, stamp, change).map(|applied| applied.inspect(count));
        };
        let (hash, now) = (self.hash(&taken.counter), self.now());
        let (done, rest, there) = self.shards.lock(hash).take_back(hash, taken, units, now);
        if rest == 0 {
            return MaybeFuture::Ready(Ok(vec![ChangeResult::new(done, taken.stamp)]));
        }
        let stamp = taken.stamp;
        self.settle_there(before, taken, there, Change::Refund(rest)).map(move |applied| {
            let done = |applied: ChangeResult| ChangeResult { units: applied.units + done, stamp, ..applied };
            applied.map(|applied| applied.into_iter().map(done).collect())
        })
    }

    fn settle_there(&self, before: &[ReceiptItem], taken: &ReceiptItem, stamp: u64, change: Change) -> Settling {
        let Some(&store) = self.inner_id.get() else {
            return MaybeFuture::Ready(Ok(vec![ChangeResult::new(0, taken.stamp)]));
        };
        let at = |taken: &ReceiptItem, stamp| ReceiptItem { stamp, ..taken.clone() };
        let there = |taken: &ReceiptItem| {
            let hash = self.hash(&taken.counter);
            self.shards.lock(hash).stamp_of(hash, taken)
        };
        let earlier = before.iter().filter_map(|part| Some(at(part, there(part)?)));
        let receipt = Receipt::new(store, earlier.chain([at(taken, stamp)]));
        let settlement = Settlement::new(receipt.items().len() - 1, change);
        self.inner.settle(receipt, &[settlement])
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        let backs = self.take(usize::MAX);
        self.give_back(backs, self.now());
        self.counts().log();
    }
}
