//! The memory store, its settings, and decisions on the counters that clones share.
//!
//! Each future is ready, and deadlines are ignored.
//!
//! A request with one check takes one lock and probes one table. A request with several is decided under the locks of
//! all their shards, so that no other request sees a part of its effects. A denied request takes nothing: it writes
//! only strikes and ranks. The clock is read after the locks were taken.
//!
//! Times are microseconds since the Unix epoch, as [`micros`](crate::store::clock::micros) bounds them. Aligned windows
//! are counted by the wall clock, and all else by the monotonic one, including eviction, which follows a wall clock
//! that is set back, by up to a day.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::MemoryCounters;
use crate::core::{Error, Quota};
use crate::store::bans::{changed, log, with_bans};
use crate::store::clock::{Clock, SystemClock, Times};
use crate::store::evaluate::{adjustment, applied, decided, decided_one, evaluate, finish, is_kept, untaken};
use crate::store::map::{Fingerprint, Fingerprints, Shards};
use crate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, ReceiptItem, Requirement,
    Settlement, Settling, Store, StoreDecision, StoreId,
};

/// Takes 32 MB of entries, in tables of about twice that.
const DEFAULT_CAPACITY: usize = 1_000_000;

/// Counters in the memory of this process.
///
/// The number of keys is bounded, by default to 1 million. Clones share the counters. Needs no runtime and no thread.
///
/// # Eviction
///
/// When a new key finds the store full, idle keys, which hold no information, are dropped first. If all keys are
/// active, they are evicted by class: first those with units left, then those that have used up all, and last those
/// that are being denied. Each class has a reserve from which the others cannot evict it: a quarter, a quarter and half
/// of the capacity. Within a class, the keys with the fewest requests (allowed or denied) since they were last idle are
/// evicted first, and the count of an evicted key is subtracted from the counts of those that stay.
///
/// So a client that invents keys, however many, to have a counter evicted:
///
/// - cannot evict a key that is being denied, unless its invented keys are being denied themselves; using up all their
///   units is not enough;
/// - needs, for each request that is forgotten, at least a fifth of the capacity in requests of its own; if the key is
///   being denied, two fifths, with keys that are denied. At the default capacity, 100 requests of a key take 20
///   million others, sent before that key becomes idle by itself.
///
/// This holds for up to 127 requests of one key, because no more are counted, and for requests with one invented key
/// each. A request with invented keys in several policies counts as several.
///
/// # Memory
///
/// A counter takes 32 bytes of a table, half of which may be empty. A sliding log takes its units in addition. Texts
/// are not kept: counters are identified by 84 bits of a hash (SipHash-1-3) of policy, key, algorithm and window, keyed
/// at random for each store. No client can cause a collision. The probability that some two of `n` collide by chance is
/// n² / 2^85.
///
/// # Examples
///
/// ```
/// use tollgate::MemoryStore;
///
/// let store = MemoryStore::builder().capacity(10_000).build();
/// assert!(store.is_empty());
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<SharedCounters>,
}

/// Settings of a [`MemoryStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::MemoryStore;
///
/// let builder = MemoryStore::builder().capacity(50_000).clock(|| Duration::from_secs(1_000));
/// let store = builder.build();
/// assert_eq!(store.len(), 0);
/// ```
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: Box<dyn Clock>,
}

impl MemoryStore {
    /// Creates a store of up to 1 million keys on the system's clock. [`builder`](Self::builder) sets another clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let clone = store.clone();
    /// assert_eq!((store.len(), clone.len()), (0, 0));
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder of a store. Defaults: 1 million keys, on the system's clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { capacity: DEFAULT_CAPACITY, clock: Box::new(SystemClock::new()) }
    }

    /// Returns the number of keys, including idle ones that were not dropped yet.
    ///
    /// The shards of the store are counted one after the other, each under its lock, so while requests are decided the
    /// sum is approximate.
    pub fn len(&self) -> usize {
        self.shared.shards.each().map(|counters| counters.len()).sum()
    }

    /// Returns `true` if the store has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn id(&self) -> StoreId {
        self.shared.id
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("shards", &self.shared.shards.count()).finish_non_exhaustive()
    }
}

impl MemoryStoreBuilder {
    /// Sets the maximum number of keys, instead of 1 million; 0 counts as 1.
    ///
    /// The capacity is divided evenly among up to 64 shards, so a shard may be full, and evict, slightly before the
    /// store is. Memory is allocated as keys are added.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::MemoryStore;
    ///
    /// let store = MemoryStore::builder().capacity(100_000).build();
    /// assert!(store.is_empty());
    /// ```
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity: capacity.max(1), ..self }
    }

    /// Sets the clock, instead of the system's.
    ///
    /// Fixed windows, sliding windows and windows of a calendar use its [`wall`](Clock::wall), all else its
    /// [`now`](Clock::now).
    ///
    /// A clock that steps back neither refills nor rewinds a counter. State that is more than a window ahead of the
    /// clock is set aside, with a warning. Tests set a clock instead of sleeping.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::MemoryStore;
    ///
    /// let store = MemoryStore::builder().clock(|| Duration::from_secs(1_000)).build();
    /// assert!(store.is_empty());
    /// ```
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Builds the store. All settings are valid, so this cannot fail.
    pub fn build(self) -> MemoryStore {
        MemoryStore { shared: Arc::new(SharedCounters::new(self.capacity, self.clock)) }
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn decide(&self, checks: &[Check], _: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        if let [check @ Check { ban: None, .. }] = checks {
            return MaybeFuture::Ready(Ok(self.shared.decide_one(check)));
        }
        MaybeFuture::Ready(Ok(self.shared.decide(checks)))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.shared.id {
            return MaybeFuture::Ready(Ok(Vec::new()));
        }
        MaybeFuture::Ready(Ok(Settlement::each(changes, &receipt, |before, taken, change| {
            self.shared.adjust(before, taken, change)
        })))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        MaybeFuture::Ready(Ok(self.shared.adjust(&[], &untaken(counter), change)))
    }

    fn capabilities(&self, _: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Ok(Capabilities::default().id(self.shared.id))
    }
}

/// Minimum capacity of a shard, if there are several.
const KEYS_PER_PART: usize = 1_024;

struct SharedCounters {
    id: StoreId,
    fingerprints: Fingerprints,
    shards: Shards<MemoryCounters>,
    clock: Arc<dyn Clock>,
}

impl SharedCounters {
    fn new(capacity: usize, clock: Box<dyn Clock>) -> Self {
        let clock: Arc<dyn Clock> = clock.into();
        let shards = Shards::new(capacity, KEYS_PER_PART, |capacity| MemoryCounters::new(capacity, Arc::clone(&clock)));
        Self { id: StoreId::new(), fingerprints: Fingerprints::new(), shards, clock }
    }

    #[inline]
    fn decide_one(&self, check: &Check) -> StoreDecision {
        let of = self.fingerprints.hash(&check.counter);
        let step = {
            let mut counters = self.shards.lock(of.hash);
            // Read under the lock, so that a request that waited for it does not bring an older time.
            let times = Times::read(&*self.clock, [check.counter.quota()]);
            counters.decide(of, check, times)
        };
        step.found.warn(check.counter.policy());
        decided_one(self.id, check, &step)
    }

    fn decide(&self, checks: &[Check]) -> StoreDecision {
        let checks = &*with_bans(checks);
        // Faster than to collect the few there are.
        let mut fingerprints = SmallVec::<[Fingerprint; 4]>::with_capacity(checks.len());
        for check in checks {
            fingerprints.push(self.fingerprints.hash(&check.counter));
        }
        let mut shards = self.shards.lock_all(fingerprints.iter().map(|of| of.hash));
        let times = Times::read(&*self.clock, checks.iter().map(|check| check.counter.quota()));
        let state = |index: usize| shards.part(fingerprints[index].hash).state(fingerprints[index]);
        let now = |quota: &Quota| times.ticks(quota);
        let mut steps = evaluate(checks, state, now);
        let refused = finish(checks, &mut steps, state, now);
        // In order, so that the last check of a counter, which was decided on the sum, is kept.
        for (index, check) in checks.iter().enumerate() {
            let (of, counters) = (fingerprints[index], shards.part_mut(fingerprints[index].hash));
            if is_kept(checks, &steps, index, refused) {
                counters.keep(of, check.counter.quota(), &mut steps[index], times);
            } else if refused && !steps[index].fits && check.mode == Mode::Enforce {
                counters.refused(of);
            }
        }
        // Nothing is logged under the locks.
        drop(shards);
        log(checks, &steps);
        decided(self.id, checks, &steps, refused)
    }

    /// `before` is what the request took earlier: a bucket refunds no units that were replenished, which depends on it.
    fn adjust(&self, before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> ChangeResult {
        let (taken, change) = changed(taken, change);
        let ReceiptItem { counter, floor, .. } = &*taken;
        let of = self.fingerprints.hash(counter);
        if change == Change::Reset {
            // The next request finds an unused counter.
            let found = self.shards.lock(of.hash).remove(of);
            return ChangeResult::new(found.into(), taken.stamp);
        }
        let (units, step) = {
            let mut counters = self.shards.lock(of.hash);
            let times = Times::read(&*self.clock, [counter.quota()]);
            counters.adjust(of, counter.quota(), *floor, times, adjustment(before, &taken, change))
        };
        applied(&taken, change, units, &step)
    }
}
