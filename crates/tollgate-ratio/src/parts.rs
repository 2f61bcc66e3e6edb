//! Counters of a store, bounded, in parts with a lock each.
//!
//! Bits of a hash select the part. The hash has random keys for each store, so that no client can choose counters that
//! collide. One part is locked at a time, for a few probes or to iterate over its entries, and never across an `await`.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use tokio::time::Instant;
use tollgate::store::{Check, Counter};

use crate::counter::{RatioCounter, draw};
use crate::shared::RatioInner;

const MAX_PARTS: usize = 64;
const MIN_ROOM: usize = 64;

#[derive(Debug)]
pub(crate) struct Parts {
    hasher: RandomState,
    parts: Box<[Mutex<Part>]>,
}

#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) table: HashTable<RatioCounter>,
    room: usize,
    pub(crate) since: Instant,
    pub(crate) seed: u64,
}

impl Parts {
    /// `seed` is called for each part, because the parts of a request must draw independently.
    pub(crate) fn new(capacity: usize, since: Instant, mut seed: impl FnMut() -> u64) -> Self {
        let count = 1_usize << (capacity / MIN_ROOM).clamp(1, MAX_PARTS).ilog2();
        let room = capacity / count;
        let part = |_| Mutex::new(Part { table: HashTable::new(), room, since, seed: seed() });
        Self { hasher: RandomState::new(), parts: (0..count).map(part).collect() }
    }

    pub(crate) fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.hash_one((counter.key(), counter.policy().as_str()))
    }

    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, Part> {
        // The table uses the low bits and the seven highest ones.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = (hash >> 40) as usize;
        lock(&self.parts[bits & (self.parts.len() - 1)])
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Part>> {
        self.parts.iter().map(lock)
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part {
    pub(crate) fn is_full(&self) -> bool {
        self.table.len() >= self.room
    }

    pub(crate) fn make(&mut self, shared: &RatioInner, hash: u64, check: &Check) -> Option<&mut RatioCounter> {
        let (counter, tick) = (&check.counter, shared.settings.tick);
        if self.find(hash, counter).is_none() {
            if self.is_full() {
                return None;
            }
            let mut entry = RatioCounter::new(hash, counter, tick);
            shared.tell(&mut entry);
            self.table.insert_unique(hash, entry, |entry| entry.hash);
        }
        let entry = self.table.find_mut(hash, |entry| entry.is_of(counter))?;
        entry.follow(check, tick);
        Some(entry)
    }

    pub(crate) fn find(&self, hash: u64, counter: &Counter) -> Option<&RatioCounter> {
        self.table.find(hash, |entry| entry.is_of(counter))
    }

    pub(crate) fn draw(&mut self) -> f64 {
        draw(&mut self.seed)
    }
}
