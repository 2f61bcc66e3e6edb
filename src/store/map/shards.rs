//! Shards of a map, each behind a lock.
//!
//! Callers hold locks for a few probes and never across an `await`.
//!
//! Invariant: several shards of one map are locked in ascending order only, so that two requests cannot deadlock.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

const MAX_SHARDS: usize = 64;

#[derive(Debug)]
pub(in crate::store) struct Shards<T> {
    /// A power of two, padded so that no two locks share a cache line.
    shards: Box<[Padded<Mutex<T>>]>,
}

/// Two cache lines of 64 bytes, because processors prefetch neighbours.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

pub(in crate::store) struct Locked<'a, T> {
    /// Each hash, and the index of its shard's guard.
    places: SmallVec<[(u64, usize); 4]>,
    /// In ascending order of the shards, which are distinct.
    guards: SmallVec<[MutexGuard<'a, T>; 4]>,
}

impl<T> Shards<T> {
    pub(in crate::store) fn new(capacity: usize, least: usize, make: impl Fn(usize) -> T) -> Self {
        // A power of two, because bits of the hash select a shard.
        let shards = 1 << (capacity / least).clamp(1, MAX_SHARDS).ilog2();
        let shards = (0..shards).map(|_| Padded(Mutex::new(make(capacity / shards)))).collect();
        Self { shards }
    }

    pub(in crate::store) fn count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(in crate::store) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        lock(&self.shards[self.index(hash)].0)
    }

    /// Locks in ascending order, so that two requests cannot deadlock.
    #[inline]
    pub(in crate::store) fn lock_all(&self, hashes: impl Iterator<Item = u64>) -> Locked<'_, T> {
        let (mut places, mut indices) = (SmallVec::<[(u64, usize); 4]>::new(), SmallVec::<[usize; 4]>::new());
        for hash in hashes {
            let index = self.index(hash);
            places.push((hash, index));
            let place = indices.iter().position(|other| *other >= index).unwrap_or(indices.len());
            if indices.get(place) != Some(&index) {
                indices.insert(place, index);
            }
        }
        for (_, place) in &mut places {
            *place = indices.iter().position(|index| index == place).expect("every hash's part is locked");
        }
        let mut guards = SmallVec::with_capacity(indices.len());
        for index in indices {
            guards.push(lock(&self.shards[index].0));
        }
        Locked { places, guards }
    }

    pub(in crate::store) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(|shard| lock(&shard.0))
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        // Tables use the low bits and the seven highest ones.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = (hash >> 40) as usize;
        bits & (self.shards.len() - 1)
    }
}

impl<T> Locked<'_, T> {
    #[inline]
    pub(in crate::store) fn entry(&mut self, place: usize) -> (u64, &mut T) {
        let (hash, guard) = self.places[place];
        (hash, &mut *self.guards[guard])
    }

    #[inline]
    pub(in crate::store) fn part(&self, place: usize) -> &T {
        &self.guards[self.places[place].1]
    }
}

#[inline]
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
