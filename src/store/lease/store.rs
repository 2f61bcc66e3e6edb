//! The lease store: what is held, and how it is returned.
//!
//! A request goes to the leases first; what they do not admit, and everything about counters as such, goes to the inner
//! store. Settlements are distinguished by the receipt's store. When the last clone is dropped, all leases are returned
//! at once, without waiting.
//!
//! Invariant: the inner store is called without any lock held, since it may decide at once and then lock a part
//! itself.

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

/// A store that takes units for hot keys from the inner store in advance, many in one call, and admits requests with
/// them locally.
///
/// **The bound**: every admitted unit was charged in the inner store at most τ = min(1 s, window / 10) earlier and in
/// the same window. So any interval of length *d* admits at most what the quota allows in *d* + τ, and fixed and
/// sliding windows hold exactly.
///
/// **The cost**: units that one process holds are refused to the others, for at most τ, and to its own other requests
/// until the reply to the lease call has arrived. A crash loses them, and what a bucket refilled while they were held
/// unspent is lost too. `remaining` counts the units this process holds and those that were left when it took them, so
/// it is up to τ old.
///
/// **When to use it**: for keys that one process decides many times within τ (a route, a tenant, a global limit), above
/// all where such keys burden one node of a Redis Cluster. Other keys are decided by the inner store, one call each, as
/// without it.
///
/// A key is hot from 8 requests within τ. Leases follow its rate, up to a share of the limit; the next lease is taken
/// in the background before the current one is spent. A request with several checks is admitted locally if leases cover
/// all of them, those in shadow mode included; otherwise the inner store decides it as a whole. The inner store always
/// decides looks, reserves, leaky buckets, and whatever costs more than is held.
///
/// # Overdraft
///
/// A store that is far away takes longer to grant a lease than a busy key needs to spend one. With an
/// [overdraft](LeaseStoreBuilder::overdraft), this process admits requests of such a key all the same while a lease call
/// for it is in flight, as long as it owes no more than so many units. The lease pays what is owed when it comes.
///
/// - **The bound**: all processes together admit at most (processes × overdraft) units more than without it, in any
///   window (for a bucket, in any interval). No more is owed of a key than remained when its last lease was granted.
///   Stores keep a debt of at most one more capacity, so processes × overdraft has to be less than the capacity.
/// - **How large**: it should cover what this process admits for a key in a round trip to the inner store, and in two
///   round trips where one takes longer than τ. What is beyond it waits for the inner store.
/// - **Which keys**: those with 8 requests within a second in this process, from their first lease on. When a lease is
///   refused or fails, what is owed is [charged](crate::store::Change::Charge), and the inner store decides the key until
///   a lease is granted again. So while it is unavailable, at most an overdraft of each hot key is owed, and
///   its errors are returned for what is beyond that.
/// - **Lost replies**: a charge is sent once, so its units count nowhere if it is lost on its way, and those that are
///   owed when the process crashes neither. A lease call that failed may have charged its units, which are charged again
///   then: so they count at most once more than they were used.
/// - **Refunds** of units that are owed lower the debt. Units that a lease paid are refunded in the inner store, if it was
///   one of the last 16 payments of a key that had a request in this process within the last minute. All other
///   overdrawn units are not refunded: those that were charged, or were owed before a reset through this process.
///
/// # Returning
///
/// Unspent units are returned when their key becomes idle and when their lease ends: by a task that runs every 50 ms in
/// the runtime of the first lease, or of a later one if that has ended. A runtime is needed only if the inner store needs
/// one: without it, they are returned with the next request or look for their key. A raised limit leaves leases as they
/// are; a lowered one returns them.
///
/// A reset forgets what is held of its counter. Requests that come before it is done may be admitted by another lease,
/// which is forgotten as well.
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
    /// What clones share; when the last one is dropped, leases are returned.
    leases: Arc<Leases>,
}

impl LeaseStore {
    /// Leases from `inner` with the default settings.
    pub fn new(inner: impl Store) -> Self {
        Self::builder(inner).build()
    }

    /// Returns settings of a store that leases from `inner`: a share of a tenth, and 10,000 hot keys.
    pub fn builder(inner: impl Store) -> LeaseStoreBuilder {
        LeaseStoreBuilder::new(Arc::new(inner))
    }

    /// Returns the counts of the units leased so far, by all clones together.
    pub fn counts(&self) -> LeaseCounts {
        self.leases.counts()
    }

    /// Returns all leases, and takes no more: from then on every request goes to the inner store.
    ///
    /// Waits for the lease calls in flight, and for the reply of the inner store to a look at each counter to which
    /// units were returned. Dropping the last clone also returns everything, but without waiting: what the inner store
    /// no longer accepts stays taken. A [`RedisStore`](crate::RedisStore) has at most 4,096 settlements in flight, and
    /// sends none after its runtime has ended.
    ///
    /// # Cancellation
    ///
    /// Once the future was polled, dropping it loses nothing: units held are passed to the inner store within 50 ms, and
    /// leases that arrive later are returned as they arrive. Call it again to wait for them.
    pub async fn close(&self) {
        close(&self.leases).await;
    }
}

/// A reset under way; forgets the leases of the counter when it is dropped.
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
        // What remains at the inner store is not all that remains.
        let strip = |applied: ChangeResult| ChangeResult { outcome: None, ..applied };
        settling.map(move |applied| applied.map(|applied| applied.into_iter().map(strip).collect()))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        if change != Change::Reset {
            return self.leases.inner.adjust(counter, change);
        }
        self.leases.forget(counter);
        // And what is leased before the reset comes through, whether or not somebody waits for it.
        let forgetting = Forgetting(Arc::clone(&self.leases), counter.clone());
        self.leases.inner.adjust(counter, change).map(move |done| {
            drop(forgetting);
            done
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        // Units of each policy are refunded if they are not used.
        let refunding = requirements.iter().map(|one| Requirement { settles: Settles::ByOutcome, ..one.clone() });
        self.leases.inner.capabilities(&refunding.collect::<Vec<_>>())
    }
}

impl fmt::Debug for LeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Lease calls in flight at most, a sweep included; more are not made.
const MOST_CALLS: u32 = 4_096;

/// What all clones share. Times are microseconds of `clock`.
struct Leases {
    /// What the receipts of requests admitted here carry.
    id: StoreId,
    /// The store that leases are taken from.
    inner: Arc<dyn Store>,
    /// The identity in the receipts of the leases, set by the first one; units are returned under it.
    inner_id: OnceLock<StoreId>,
    /// The hot keys, by the hash of policy and key.
    shards: Shards<HotKeys>,
    /// The hash of counters.
    hasher: CounterHasher,
    /// A permit for each lease call that may be in flight, and for a sweep; closed when the store is.
    calls: Arc<Semaphore>,
    /// Whether a task sweeps.
    swept: AtomicBool,
    /// Whether the store has been closed: nothing is admitted here any more.
    closed: AtomicBool,
    /// The share of a limit that is held at most: above 0 and up to 1.
    share: f64,
    /// Where the time comes from.
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
            calls: Arc::new(Semaphore::new(MOST_CALLS as usize)),
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
        self.hasher.of(counter)
    }

    /// Returns the most units this process holds of a counter: the share of the limit, or of a smaller capacity.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of an integer below 2^52"
    )]
    fn most(&self, quota: &Quota) -> u64 {
        (quota.limit().min(quota.capacity()) as f64 * self.share) as u64
    }

    /// Returns the units of a counter that are held here, and those that are owed.
    fn held(&self, counter: &Counter) -> (u64, u64) {
        let (hash, now, mut backs) = (self.hash(counter), self.now(), Vec::new());
        let held = self.shards.lock(hash).find(hash, counter).map_or((0, 0), |hot| {
            hot.end_lots(now, self.wall(counter.quota()), &mut backs);
            (hot.held(now), hot.owed())
        });
        self.give_back(backs, now);
        held
    }

    /// Returns the counts of all parts, one locked after the other.
    fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts::default();
        self.shards.each().for_each(|hot_keys| counts += hot_keys.counts);
        counts
    }

    /// Has the inner store look at checks that cost nothing; units held here are added to what it finds to remain, and
    /// units owed are not left.
    fn look(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let held: SmallVec<[(u64, u64); 4]> = checks.iter().map(|check| self.held(&check.counter)).collect();
        if held.iter().all(|units| *units == (0, 0)) {
            return self.inner.decide(checks, ask);
        }
        // What the inner store refuses may be admitted by units held here.
        let looked = self.inner.decide(checks, ask.mode(AskMode::Normal));
        looked.map(move |decided| {
            let StoreDecision { decision, receipt } = decided?;
            let outcomes = decision.outcomes().iter().zip(&held);
            let outcomes = outcomes.map(|(outcome, &(held, owed))| outcome.with_more(held, owed));
            Ok(StoreDecision::new(Decision::new(outcomes, decision.source()), receipt))
        })
    }

    /// Returns leases to the inner store and charges debts, and counts what became of them.
    ///
    /// To be called without any lock of a part held.
    fn give_back(&self, backs: Vec<Back>, now: u64) {
        for back in backs {
            let hash = self.hash(back.counter());
            match back {
                Back::Lot(lot, limit) => {
                    let (receipt, left, returned) = lot.into_refund(limit, now);
                    if returned > 0 {
                        let refund = Settlement::new(0, Change::Refund(returned));
                        drop(self.inner.settle(receipt, &[refund]));
                    }
                    let mut hot_keys = self.shards.lock(hash);
                    hot_keys.counts.returned += returned;
                    hot_keys.counts.lost += left - returned;
                }
                Back::Debt(counter, units) => {
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

    /// Forgets a counter that is reset: units that are held are lost, and units that are owed are not charged.
    fn forget(&self, counter: &Counter) {
        let hash = self.hash(counter);
        self.shards.lock(hash).forget(hash, counter);
    }

    /// Settles what was spent here, by a request that took others `before`.
    ///
    /// Refunded units are owed no more, or return to their lot, if that is neither over nor given up; else, and with
    /// every charge, the change goes to the inner store under its own stamp. Of overdrawn units whose payment is not
    /// known any more nothing is refunded.
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

    /// Settles units in the inner store, which has this stamp for them.
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
