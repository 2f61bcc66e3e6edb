//! Shards of a map, each behind a lock.
//!
//! Callers hold locks for a few probes and never across an `await`.
//!
//! Invariant: several shards of one map are locked in ascending order only, so that two requests cannot deadlock.

use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

/// Each is a bit in [`Shards::lock_all`].
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
    shards: &'a Shards<T>,
    /// Indexes of shards, which are distinct, and their guards.
    guards: SmallVec<[(usize, MutexGuard<'a, T>); 4]>,
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
        let mut indexes = hashes.fold(0_u64, |indexes, hash| indexes | 1 << self.index(hash));
        let mut guards = SmallVec::new();
        while indexes != 0 {
            let index = indexes.trailing_zeros() as usize;
            guards.push((index, lock(&self.shards[index].0)));
            indexes &= indexes - 1;
        }
        Locked { shards: self, guards }
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

/// The shard of each hash must be locked.
impl<T> Locked<'_, T> {
    #[inline]
    pub(in crate::store) fn part(&self, hash: u64) -> &T {
        &self.guards[self.place(hash)].1
    }

    #[inline]
    pub(in crate::store) fn part_mut(&mut self, hash: u64) -> &mut T {
        let place = self.place(hash);
        &mut self.guards[place].1
    }

    #[inline]
    fn place(&self, hash: u64) -> usize {
        let index = self.shards.index(hash);
        self.guards.iter().position(|(of, _)| *of == index).expect("the shard of each hash is locked")
    }
}

#[inline]
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
