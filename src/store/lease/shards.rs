//! Parts of what is kept by counter, each behind a lock of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ahash::RandomState;
use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use crate::store::{Check, Counter};

const MOST_SHARDS: usize = 64;

pub(in crate::store) struct Shards<T> {
    hasher: RandomState,
    shards: Box<[CachePadded<Mutex<T>>]>,
}

/// The parts one request concerns, locked.
pub(in crate::store) struct Locked<'a, T> {
    places: SmallVec<[(u64, usize); 4]>,
    guards: SmallVec<[MutexGuard<'a, T>; 4]>,
}

impl<T> Shards<T> {
    /// Parts that together have room for `capacity`; `make` is told the room of each.
    pub(in crate::store) fn new(capacity: usize, make: impl Fn(usize) -> T) -> Self {
        // A power of two: parts are picked by bits of the hash.
        let shards = 1 << capacity.clamp(1, MOST_SHARDS).ilog2();
        let shards = (0..shards).map(|_| CachePadded::new(Mutex::new(make(capacity / shards)))).collect();
        Self { hasher: RandomState::new(), shards }
    }

    pub(in crate::store) fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.hash_one((&counter.key, &*counter.policy))
    }

    pub(in crate::store) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        lock(&self.shards[self.index(hash)])
    }

    /// Locks what all checks concern, in ascending order, so that two requests never wait for each
    /// other in a circle.
    pub(in crate::store) fn lock_all(&self, checks: &[Check]) -> Locked<'_, T> {
        let hashes: SmallVec<[u64; 4]> = checks.iter().map(|check| self.hash(&check.counter)).collect();
        let mut indices: SmallVec<[usize; 4]> = hashes.iter().map(|&hash| self.index(hash)).collect();
        indices.sort_unstable();
        indices.dedup();
        let guards = indices.iter().map(|&index| lock(&self.shards[index])).collect();
        let place = |hash| indices.iter().position(|&at| at == self.index(hash)).expect("every check's part is locked");
        Locked { places: hashes.iter().map(|&hash| (hash, place(hash))).collect(), guards }
    }

    fn index(&self, hash: u64) -> usize {
        // Tables use the low bits and the seven highest ones.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = (hash >> 40) as usize;
        bits & (self.shards.len() - 1)
    }

    /// Each part in turn, locked.
    pub(in crate::store) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(|shard| lock(shard))
    }
}

impl<T> Locked<'_, T> {
    /// The hash of a check's counter, and the part it is in.
    pub(in crate::store) fn of(&mut self, check: usize) -> (u64, &mut T) {
        let (hash, place) = self.places[check];
        (hash, &mut *self.guards[place])
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, Quota};

    #[test]
    fn no_two_stores_hash_a_key_alike_so_that_none_can_be_flooded_by_a_list_made_before() {
        let counter = Counter {
            policy: "p".try_into().expect("a valid name"),
            key: Key::new("k", "v"),
            quota: Quota::per_second(1),
        };
        let hashes: std::collections::HashSet<u64> = (0..8).map(|_| Shards::new(1, |_| ()).hash(&counter)).collect();
        assert_eq!(hashes.len(), 8);
    }
}
