//! The memory store, its settings, and how requests are decided on the counters that clones share.
//!
//! Nothing here ever waits: each answer is ready, and deadlines are not looked at.
//!
//! A request with one check takes one lock and probes one table. One with several is decided under the locks of all parts
//! that it concerns, so no other request sees a part of its effects; a refused one takes nothing from any counter: it
//! writes strikes and ranks only. The clock is read after the locks were taken.
//!
//! Times are microseconds since the Unix epoch, as [`micros`](crate::store::clock::micros) bounds them. Aligned windows
//! are counted by the wall clock, and all else by the monotonic one, eviction included, which follows a wall clock that is
//! set back, by up to a day.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::counters::Counters;
use crate::core::{Error, Quota};
use crate::store::bans::{changed, log, with_bans};
use crate::store::clock::{Clock, SystemClock, Times};
use crate::store::evaluate::{adjustment, applied, decided, decided_one, evaluate, finish, is_kept, of_any};
use crate::store::map::{Fingerprint, Fingerprints, Shards};
use crate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Mode, Receipt, ReceiptItem, Requirement,
    Settlement, Settling, Store, StoreDecision, StoreId,
};

/// Keys of a store that no other capacity was set for: 32 MB of entries, in tables of about twice that.
const DEFAULT_CAPACITY: usize = 1_000_000;

/// Counters in the memory of this process.
///
/// Bounded: by default it keeps 1 million keys. Clones share the counters. Needs no runtime and no
/// thread.
///
/// # Eviction
///
/// When a new key needs room, idle keys, which hold no information, are dropped first. If all keys are active, they are
/// evicted by class: first those with units left, then those that have used up all, and last those that are being
/// refused. Each class has room from which the others cannot evict it: a quarter, a quarter and half of the capacity.
/// Within a class, the keys with the fewest requests (admitted or refused) since they were last idle are evicted first,
/// and the count of an evicted key is subtracted from the counts of those that stay.
///
/// So a client that makes up keys, however many, to have a counter evicted:
///
/// - cannot evict a key that is being refused, unless its made-up keys are being refused themselves; using up all their
///   units is not enough;
/// - needs, for each request that is forgotten, at least a fifth of the capacity in requests of its own; if the key is
///   being refused, two fifths, with keys that are refused. At the default capacity, 100 requests of a key take 20
///   million others, sent before that key becomes idle by itself.
///
/// This holds for up to 127 requests of one key, as no more are counted, and for requests with one made-up key each:
/// one with made-up keys in several policies counts as several.
///
/// # Memory
///
/// A counter takes 32 bytes of a table, half of which may be empty; a sliding log takes its units
/// besides. Texts are not kept: counters are identified by 84 bits of a hash (SipHash-1-3) of
/// policy, key, algorithm and window, keyed at random for each store. No client can make two
/// meet; that some two of `n` do by chance has a probability of n² / 2^85.
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
    /// The counters, shared by all clones.
    shared: Arc<SharedCounters>,
}

/// Settings of a [`MemoryStore`]: how many keys it keeps, and which clock it decides by.
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
    /// At least 1.
    capacity: usize,
    /// By default a `SystemClock`.
    clock: Box<dyn Clock>,
}

impl MemoryStore {
    /// Returns a store of up to 1 million keys on the system's clock.
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

    /// Returns settings to build a store from: 1 million keys, on the system's clock, unless they are set otherwise.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { capacity: DEFAULT_CAPACITY, clock: Box::new(SystemClock::new()) }
    }

    /// Returns how many keys are kept, idle ones that were not yet dropped included.
    ///
    /// The parts of the store are counted one after the other, each under its lock, so while requests are decided the
    /// sum is approximate.
    pub fn len(&self) -> usize {
        self.shared.shards.each().map(|counters| counters.len()).sum()
    }

    /// Returns whether no key is kept.
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
    /// Sets how many keys are kept at most, instead of 1 million; 0 is taken as 1.
    ///
    /// The capacity is divided evenly among up to 64 parts, so a part may be full, and evict, a little before the
    /// store is. Memory is allocated as keys come.
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

    /// Takes the time from another clock, instead of the system's: fixed windows, sliding windows and those of a calendar
    /// by its [`wall`](Clock::wall), all else by its [`now`](Clock::now).
    ///
    /// A clock that steps back neither refills nor rewinds a counter; state that is more than a window ahead of the
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
        MaybeFuture::Ready(Ok(self.shared.adjust(&[], &of_any(counter), change)))
    }

    fn capabilities(&self, _: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Ok(Capabilities::default().id(self.shared.id))
    }
}

/// Several parts are made only if each has room for so many keys.
const KEYS_PER_PART: usize = 1_024;

/// The counters, and the time by which they are decided.
struct SharedCounters {
    /// What this store's receipts carry; those of another store are not settled here.
    id: StoreId,
    /// The keyed hash, drawn at random for this store.
    fingerprints: Fingerprints,
    /// The counters; a fingerprint's hash picks the part.
    shards: Shards<Counters>,
    /// Where the time comes from, at each decision and change.
    clock: Arc<dyn Clock>,
}

impl SharedCounters {
    fn new(capacity: usize, clock: Box<dyn Clock>) -> Self {
        let clock: Arc<dyn Clock> = clock.into();
        let shards = Shards::new(capacity, KEYS_PER_PART, |capacity| Counters::new(capacity, Arc::clone(&clock)));
        Self { id: StoreId::new(), fingerprints: Fingerprints::new(), shards, clock }
    }

    #[inline]
    fn decide_one(&self, check: &Check) -> StoreDecision {
        let of = self.fingerprints.of(&check.counter);
        let step = {
            let mut counters = self.shards.lock(of.hash);
            // Read under the lock: a request that waited for it must not come with an older time.
            let times = Times::read(&*self.clock, [check.counter.quota()]);
            counters.decide(of, check, times)
        };
        step.found.warn(check.counter.policy());
        decided_one(self.id, check, &step)
    }

    fn decide(&self, checks: &[Check]) -> StoreDecision {
        let checks = &*with_bans(checks);
        // Pushed one by one, which is quicker than to collect them where there are few.
        let mut fingerprints = SmallVec::<[Fingerprint; 4]>::with_capacity(checks.len());
        for check in checks {
            fingerprints.push(self.fingerprints.of(&check.counter));
        }
        let mut parts = self.shards.lock_all(fingerprints.iter().map(|of| of.hash));
        let times = Times::read(&*self.clock, checks.iter().map(|check| check.counter.quota()));
        let state = |index| parts.part(index).state(fingerprints[index]);
        let now = |quota: &Quota| times.ticks(quota);
        let (mut steps, refused) = evaluate(checks, state, now);
        finish(checks, &mut steps, refused, state, now);
        // Checks of one counter in their order, so the last of them, which was decided on the sum, stays.
        for (index, check) in checks.iter().enumerate() {
            let (of, counters) = (fingerprints[index], parts.of(index).1);
            if is_kept(checks, &steps, index, refused) {
                counters.keep(of, check.counter.quota(), &mut steps[index], times);
            } else if refused && !steps[index].fits && check.mode == Mode::Enforce {
                counters.refused(of);
            }
        }
        // Nothing is logged under the locks.
        drop(parts);
        log(checks, &steps);
        decided(self.id, checks, &steps, refused)
    }

    /// Changes what was taken, by a request that took others `before`; returns the units changed, and a look after it.
    ///
    /// `before` matters to token buckets, which refund no units that time has refilled since: which ones those are
    /// depends on what else the request took from the same bucket.
    fn adjust(&self, before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> ChangeResult {
        let (taken, change) = changed(taken, change);
        let ReceiptItem { counter, floor, .. } = &*taken;
        let of = self.fingerprints.of(counter);
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
