//! The refusals that are remembered: a bounded number, behind a lock each part.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use super::demand::Demand;
use crate::store::memory::Fingerprint;

const MOST_SHARDS: usize = 64;
const ENTRIES_PER_SHARD: usize = 1_024;

/// At least this many entries are kept before outlived ones are looked for.
const SMALL: usize = 64;

/// Refusals by counter, quota and kind of demand. All take the same room: of a counter it is not the
/// text that is kept, which clients may choose and make long.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    /// How long a full shard is not searched for room again, in microseconds.
    pause_us: u64,
}

/// What is known of a counter since it refused. Times are microseconds of this process's clock.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The demand that was refused.
    pub(super) units: u64,
    pub(super) floor: u64,
    pub(super) remaining: u64,
    /// When the store was asked.
    pub(super) sent: u64,
    /// Until when this may be told.
    pub(super) until: u64,
    /// When the demand fits again, counted from the answer: never early.
    pub(super) retry_at: u64,
    pub(super) reset_at: u64,
    /// How often the counter had been forgotten when the store was asked.
    pub(super) generation: u64,
    /// What the other checks of the refused request were told.
    pub(super) others: Option<Arc<[Other]>>,
}

/// What was last known of a check that did not refuse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    pub(super) hash: u64,
    pub(super) remaining: u64,
    pub(super) reset_at: u64,
}

#[derive(Debug)]
struct Shard {
    table: HashTable<Entry>,
    capacity: usize,
    /// The size at which outlived entries are swept out.
    sweep_at: usize,
    /// When a full shard is searched for room again.
    search_at: u64,
}

#[derive(Debug)]
struct Entry {
    /// Of counter, quota and kind.
    hash: u64,
    counter: Fingerprint,
    known: Known,
}

/// What a refusal is found by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Of counter, quota and kind of demand, with random keys of this process.
    pub(super) hash: u64,
    /// Of the counter: nobody outside can choose two that meet.
    pub(super) counter: Fingerprint,
}

impl Known {
    /// A clock that stepped back ends what was known after it.
    pub(super) fn is_live(&self, now: u64, generation: u64) -> bool {
        self.sent <= now && now < self.until && self.generation == generation
    }
}

impl Table {
    /// A table of up to `capacity` refusals, none of which lives longer than `cap_us`.
    pub(super) fn new(capacity: usize, cap_us: u64) -> Self {
        let shards = (capacity / ENTRIES_PER_SHARD).clamp(1, MOST_SHARDS);
        let shards = if shards.is_power_of_two() { shards } else { shards.next_power_of_two() / 2 };
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(capacity / shards))).collect();
        Self { shards, pause_us: cap_us / 8 }
    }

    /// How many refusals are kept, outlived ones that were not yet dropped included.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).table.len()).sum()
    }

    /// What is known of a demand, or of a smaller one of its kind.
    pub(super) fn find(&self, place: Place, demand: Demand) -> Option<Known> {
        let shard = lock(self.shard(place.hash));
        let entry = shard.table.find(place.hash, |entry| entry.is(place))?;
        (entry.known.units <= demand.units).then(|| entry.known.clone())
    }

    /// Remembers a refusal, if there is room, and if nothing that says more is known at `now`.
    pub(super) fn put(&self, place: Place, known: Known, now: u64) {
        let mut shard = lock(self.shard(place.hash));
        if let Some(entry) = shard.table.find_mut(place.hash, |entry| entry.is(place)) {
            let old = &entry.known;
            let says_more = (old.units, known.until) < (known.units, old.until);
            if !(old.is_live(now, known.generation) && says_more) {
                entry.known = known;
            }
        } else if shard.has_room(now, self.pause_us) {
            let entry = Entry { hash: place.hash, counter: place.counter, known };
            shard.table.insert_unique(place.hash, entry, |entry| entry.hash);
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // The table uses the low bits and the seven highest ones.
        #[allow(clippy::cast_possible_truncation, reason = "only the low bits are used")]
        let bits = (hash >> 40) as usize;
        &self.shards[bits & (self.shards.len() - 1)]
    }
}

impl Shard {
    fn new(capacity: usize) -> Self {
        Self { table: HashTable::new(), capacity, sweep_at: SMALL.min(capacity), search_at: 0 }
    }

    /// Whether one more fits. What is live makes no room, so that made-up keys push out nobody else's:
    /// those that find none are asked of the store.
    fn has_room(&mut self, now: u64, pause_us: u64) -> bool {
        if self.table.len() < self.sweep_at {
            return true;
        }
        if self.table.len() >= self.capacity && now < self.search_at {
            return false;
        }
        self.drop_outlived(now);
        self.search_at = now.saturating_add(pause_us);
        self.sweep_at = (2 * self.table.len()).clamp(SMALL.min(self.capacity), self.capacity);
        self.table.len() < self.capacity
    }

    /// Moves what is live into a table of its own: places of removed entries would be filled with
    /// marks, for which a table grows to twice what its entries need.
    fn drop_outlived(&mut self, now: u64) {
        let is_live = |entry: &Entry| now < entry.known.until;
        let live = self.table.iter().filter(|entry| is_live(entry)).count();
        if live == self.table.len() {
            return;
        }
        let all = mem::replace(&mut self.table, HashTable::with_capacity(live));
        for entry in all.into_iter().filter(is_live) {
            self.table.insert_unique(entry.hash, entry, |entry| entry.hash);
        }
    }
}

impl Entry {
    fn is(&self, place: Place) -> bool {
        self.hash == place.hash && self.counter == place.counter
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
