//! The parts of a map, each behind a lock of its own.
//!
//! Hashes come in and locked parts go out, one or all that a request concerns. No method returns while it holds a lock
//! that the caller does not see, and none waits for anything but locks; callers hold them for a few probes and never
//! across an `await`.
//!
//! Invariant: several parts of one map are locked in ascending order only, so two requests cannot deadlock. A lock is
//! taken even if a thread panicked while it held it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

/// The most parts of a map, however large it is.
const MOST_SHARDS: usize = 64;

/// Parts that are picked by bits of a hash.
#[derive(Debug)]
pub(in crate::store) struct Shards<T> {
    /// A power of two of them, from 1 to [`MOST_SHARDS`], padded so that no two locks share a line of a cache.
    shards: Box<[Padded<Mutex<T>>]>,
}

/// A value on lines of a cache of its own: two of 64 bytes, as processors fetch neighbours together.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// The parts one request concerns, locked.
pub(in crate::store) struct Locked<'a, T> {
    /// For each hash, it and the place of its part among the guards.
    places: SmallVec<[(u64, usize); 4]>,
    /// Ascending by the parts' places in the map; each part once.
    guards: SmallVec<[MutexGuard<'a, T>; 4]>,
}

impl<T> Shards<T> {
    /// Parts that together have room for `capacity`, and as many as have room for `least` each; `make` is given
    /// the room of one.
    pub(in crate::store) fn new(capacity: usize, least: usize, make: impl Fn(usize) -> T) -> Self {
        // A power of two: parts are picked by bits of the hash.
        let shards = 1 << (capacity / least).clamp(1, MOST_SHARDS).ilog2();
        let shards = (0..shards).map(|_| Padded(Mutex::new(make(capacity / shards)))).collect();
        Self { shards }
    }

    /// How many parts there are.
    pub(in crate::store) fn count(&self) -> usize {
        self.shards.len()
    }

    /// Locks the part of a hash.
    #[inline]
    pub(in crate::store) fn lock(&self, hash: u64) -> MutexGuard<'_, T> {
        lock(&self.shards[self.index(hash)].0)
    }

    /// Locks the parts of all hashes, in ascending order, so that two requests never wait for each other in a
    /// circle.
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

    /// Each part in turn, locked.
    pub(in crate::store) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(|shard| lock(&shard.0))
    }

    /// Returns the place of the part that a hash picks, by bits 40 and up.
    #[inline]
    fn index(&self, hash: u64) -> usize {
        // Tables use the low bits and the seven highest ones.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = (hash >> 40) as usize;
        bits & (self.shards.len() - 1)
    }
}

impl<T> Locked<'_, T> {
    /// A hash by its place among those given, and the part it is in.
    #[inline]
    pub(in crate::store) fn of(&mut self, place: usize) -> (u64, &mut T) {
        let (hash, guard) = self.places[place];
        (hash, &mut *self.guards[guard])
    }

    /// The part of a hash by its place among those given.
    #[inline]
    pub(in crate::store) fn part(&self, place: usize) -> &T {
        &self.guards[self.places[place].1]
    }
}

/// Locks a part, whether or not a thread panicked while it held the lock.
#[inline]
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
