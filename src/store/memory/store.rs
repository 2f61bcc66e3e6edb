//! The memory store: shards, locked in one order.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::clock::{Clock, SystemClock, micros};
use super::fingerprint::{Fingerprint, Fingerprints};
use super::shard::Shard;
use crate::Error;
use crate::store::evaluate::{adjustment, applied, of_any, told, told_of_one};
use crate::store::{
    Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Settlement, Settling, Store, StoreId, Taken,
};

const DEFAULT_CAPACITY: usize = 1_000_000;
const MOST_SHARDS: usize = 64;
const KEYS_PER_SHARD: usize = 1_024;

/// Counters in the memory of this process.
///
/// Bounded: by default it keeps 1 million keys. Clones share the counters. Needs no runtime and no
/// thread.
///
/// # Eviction
///
/// Idle keys, whose state says nothing any more, are dropped as new ones come. If all are active, keys
/// make way by class: first those that have units left, then those that have used up all, and last those
/// being refused. A quarter of the room is the first class's own, a quarter the second's, and half the
/// last's: others do not push it out of that. Within a class those go first for which the fewest requests
/// came, admitted or refused, since they were last idle, and the requests of those that go are discounted
/// from all that stay. So whoever can make up keys, as many as it likes, to have a counter forgotten:
///
/// - has no key forgotten that is being refused by made-up keys that are not refused themselves, though
///   they have used up all they had;
/// - needs at least as many requests as a fifth of the capacity for each request that is forgotten, and two
///   fifths, of keys that are refused, where the key is being refused: 100 requests of a key are paid by 20
///   million others at the default capacity, spent before the key is idle by itself.
///
/// That holds for up to 127 requests of one key, as no more of them are told apart, and for requests that
/// make up one key: one that makes up keys of several policies counts as several.
///
/// # Memory
///
/// A counter takes 32 bytes of a table, half of which may be empty; a sliding log takes its units
/// besides. Texts are not kept: counters are told apart by 84 bits of a hash (SipHash-1-3) of
/// policy, key, algorithm and window, keyed at random for each store. Nobody outside can make two
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
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    id: StoreId,
    pub(super) fingerprints: Fingerprints,
    pub(super) shards: Box<[CachePadded<Mutex<Shard>>]>,
    clock: Box<dyn Clock>,
}

/// Settings of a [`MemoryStore`].
#[must_use]
pub struct MemoryStoreBuilder {
    capacity: usize,
    clock: Box<dyn Clock>,
}

impl MemoryStore {
    /// A store of up to 1 million keys on the system's clock.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings to build a store from.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { capacity: DEFAULT_CAPACITY, clock: Box::new(SystemClock::new()) }
    }

    /// How many keys are kept, idle ones that were not yet dropped included.
    pub fn len(&self) -> usize {
        self.inner.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no key is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn id(&self) -> StoreId {
        self.inner.id
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("shards", &self.inner.shards.len()).finish_non_exhaustive()
    }
}

impl MemoryStoreBuilder {
    /// Sets how many keys are kept at most; 0 is taken as 1.
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity: capacity.max(1), ..self }
    }

    /// Takes the time from another clock.
    pub fn with_clock(self, clock: impl Clock) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Builds the store.
    pub fn build(self) -> MemoryStore {
        let shards = (self.capacity / KEYS_PER_SHARD).clamp(1, MOST_SHARDS);
        let shards = if shards.is_power_of_two() { shards } else { shards.next_power_of_two() / 2 };
        let shards = (0..shards).map(|_| CachePadded::new(Mutex::new(Shard::new(self.capacity / shards)))).collect();
        let inner = Inner { id: StoreId::new(), fingerprints: Fingerprints::new(), shards, clock: self.clock };
        MemoryStore { inner: Arc::new(inner) }
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn decide(&self, checks: &[Check], _: Deadline) -> Answer<Result<Decided, Error>> {
        if let [check] = checks {
            return Answer::Ready(Ok(self.inner.decide_one(check)));
        }
        let mut locked = self.inner.lock_all(checks);
        let now_us = micros(&*self.inner.clock);
        let (steps, refused) = locked.evaluate(checks, now_us);
        let decided = told(self.inner.id, checks, &steps, refused);
        if refused {
            locked.note_refusals(checks, &steps);
        } else {
            locked.commit(checks, steps, now_us);
        }
        Answer::Ready(Ok(decided))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.inner.id || changes.is_empty() {
            return Answer::Ready(Ok(Vec::new()));
        }
        Answer::Ready(Ok(Settlement::each(changes, &receipt, |before, taken, change| {
            self.inner.adjust(before, taken, change)
        })))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        Answer::Ready(Ok(self.inner.adjust(&[], &of_any(counter), change)))
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        let of = self.inner.fingerprints.of(counter);
        lock(self.inner.shard(of)).remove(of);
        Answer::Ready(Ok(()))
    }
}

impl Inner {
    /// Decides what most requests ask: one check, with one look into one shard.
    fn decide_one(&self, check: &Check) -> Decided {
        let of = self.fingerprints.of(&check.counter);
        let step = {
            let mut shard = lock(self.shard(of));
            // Read under the lock: a request that waited for it must not come with an older time.
            let now_us = micros(&*self.clock);
            shard.decide(of, check, now_us)
        };
        step.found.warn(check);
        told_of_one(self.id, check, &step)
    }

    pub(super) fn index(&self, of: Fingerprint) -> usize {
        // The table uses the low bits and the seven highest ones.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = (of.hash >> 40) as usize;
        bits & (self.shards.len() - 1)
    }

    fn shard(&self, of: Fingerprint) -> &Mutex<Shard> {
        &self.shards[self.index(of)]
    }

    fn adjust(&self, before: &[Taken], taken: &Taken, change: Change) -> Applied {
        let Taken { counter, floor, .. } = taken;
        let of = self.fingerprints.of(counter);
        let (units, step) = {
            let mut shard = lock(self.shard(of));
            let now_us = micros(&*self.clock);
            shard.adjust(of, &counter.quota, *floor, now_us, adjustment(before, taken, change))
        };
        applied(taken, change, units, &step)
    }
}

pub(super) fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
