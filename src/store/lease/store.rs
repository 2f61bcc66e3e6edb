//! The lease store and its settings.
//!
//! This is the public face of the module. A request goes to the leases first; what they do not admit, and everything
//! about counters as such, goes to the inner store. Settlements are distinguished by the receipt's store.

use std::fmt;
use std::sync::Arc;

use super::admit::admit;
use super::call::close;
use super::hot_keys::LeaseCounts;
use super::leases::Leases;
use crate::core::{Error, Requirement};
use crate::store::around::settle_each;
use crate::store::{
    Ask, AskMode, Capabilities, Change, ChangeResult, Check, Clock, Counter, MaybeFuture, Receipt, Settlement, Settles,
    Settling, Store, StoreDecision, SystemClock,
};

/// The share of a limit one process holds at most, unless another is set.
const DEFAULT_SHARE: f64 = 0.1;
/// Hot keys there is room for, unless another capacity is set.
const DEFAULT_CAPACITY: usize = 10_000;
/// The most hot keys: their cells, which are allocated at once, take 1 GiB.
const MOST_CAPACITY: usize = 1 << 24;

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
/// let counts = store.close().await;
/// assert_eq!(counts.held(), 0);
/// # });
/// ```
#[derive(Clone)]
pub struct LeaseStore {
    /// What clones share; when the last one is dropped, leases are returned.
    leases: Arc<Leases>,
}

/// Settings of a [`LeaseStore`]: how much it may hold, for how many keys, and by which clock.
///
/// # Examples
///
/// ```
/// use tollgate::store::LeaseStore;
/// use tollgate::MemoryStore;
///
/// let settings = LeaseStore::builder(MemoryStore::new()).max_share(0.2).capacity(1_000);
/// assert!(settings.build().is_ok());
/// ```
#[must_use]
pub struct LeaseStoreBuilder {
    inner: Arc<dyn Store>,
    share: f64,
    overdraft: u64,
    capacity: usize,
    clock: Box<dyn Clock>,
}

impl LeaseStore {
    /// Leases from `inner` with the default settings.
    ///
    /// # Panics
    ///
    /// Never: the default settings are valid.
    pub fn new(inner: impl Store) -> Self {
        Self::builder(inner).build().expect("the default settings are valid")
    }

    /// Returns settings of a store that leases from `inner`: a share of a tenth, and 10,000 hot keys.
    pub fn builder(inner: impl Store) -> LeaseStoreBuilder {
        let clock = Box::new(SystemClock::new());
        LeaseStoreBuilder {
            inner: Arc::new(inner),
            share: DEFAULT_SHARE,
            overdraft: 0,
            capacity: DEFAULT_CAPACITY,
            clock,
        }
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
    pub async fn close(&self) -> LeaseCounts {
        close(&self.leases).await
    }
}

impl LeaseStoreBuilder {
    /// Sets which share of a limit (of a smaller burst, if there is one) this process holds at most, instead of a
    /// tenth.
    ///
    /// It is more than 0 and at most 1, else [`build`](Self::build) returns an error. The share times the limit is
    /// rounded down; where that is less than 4 units, nothing is leased.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::LeaseStore;
    /// use tollgate::MemoryStore;
    ///
    /// assert!(LeaseStore::builder(MemoryStore::new()).max_share(0.5).build().is_ok());
    /// assert!(LeaseStore::builder(MemoryStore::new()).max_share(0.0).build().is_err());
    /// ```
    pub fn max_share(self, share: f64) -> Self {
        Self { share, ..self }
    }

    /// Sets how many units of a key this process may admit while the next lease is on its way, instead of 0.
    ///
    /// See [Overdraft](LeaseStore#overdraft) for what it costs, and how large it should be.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::store::LeaseStore;
    /// use tollgate::MemoryStore;
    ///
    /// assert!(LeaseStore::builder(MemoryStore::new()).overdraft(100).build().is_ok());
    /// ```
    pub fn overdraft(self, units: u64) -> Self {
        Self { overdraft: units, ..self }
    }

    /// Sets for how many hot keys at most leases are taken, instead of 10,000; 0 is taken as 1. More than 16,777,216
    /// are refused by [`build`](Self::build).
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
    /// If the share is not more than 0 and at most 1, or the capacity is above 16,777,216.
    pub fn build(self) -> Result<LeaseStore, Error> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Err(Error::invalid(format!(
                "a share of {} of the limit cannot be leased: give more than 0 and at most 1",
                self.share
            )));
        }
        if self.capacity > MOST_CAPACITY {
            return Err(Error::invalid(format!(
                "a capacity of {} hot keys is not allowed: give at most {MOST_CAPACITY}",
                self.capacity
            )));
        }
        let leases = Leases::new(self.inner, self.share, self.overdraft, self.capacity, self.clock);
        Ok(LeaseStore { leases: Arc::new(leases) })
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

impl fmt::Debug for LeaseStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseStoreBuilder")
            .field("share", &self.share)
            .field("overdraft", &self.overdraft)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
