//! A bounded part of the keys.

use std::time::Duration;

use hashbrown::HashTable;
use tokio::time::Instant;

use super::entry::Entry;
use crate::store::Counter;

#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    room: usize,
    /// Requests the inner store is deciding whose keys found no room: none is admitted here
    /// meanwhile.
    pub(super) strays: usize,
}

impl Shard {
    pub(super) fn new(room: usize) -> Self {
        Self { table: HashTable::new(), room, strays: 0 }
    }

    pub(super) fn find(&mut self, hash: u64, counter: &Counter) -> Option<&mut Entry> {
        self.table.find_mut(hash, |entry| entry.counter.shares_state(counter))
    }

    /// The entry of a key, made if there is room.
    pub(super) fn make(&mut self, hash: u64, counter: &Counter, now: Instant, fresh: Duration) -> Option<&mut Entry> {
        if self.find(hash, counter).is_none() {
            if self.table.len() >= self.room {
                self.make_room(now, fresh);
            }
            if self.table.len() >= self.room {
                return None;
            }
            self.table.insert_unique(hash, Entry::new(hash, counter), |entry| entry.hash);
        }
        self.find(hash, counter)
    }

    /// Drops what says nothing any more; else some key of which nothing is owed.
    fn make_room(&mut self, now: Instant, fresh: Duration) {
        self.table.retain(|entry| !entry.is_quiet() || entry.age(now) < fresh);
        if self.table.len() >= self.room {
            let mut evicted = false;
            self.table.retain(|entry| {
                let evict = !evicted && entry.is_quiet();
                evicted |= evict;
                !evict
            });
        }
    }

    pub(super) fn remove(&mut self, hash: u64, counter: &Counter) {
        if let Some(entry) = self.find(hash, counter) {
            // Whoever waits for it finds it with nothing owed.
            (entry.room, entry.unpaid, entry.doubted) = (0, 0, 0);
        }
    }

    /// The counters something is owed for.
    pub(super) fn debtors(&self) -> impl Iterator<Item = &Counter> {
        self.table.iter().filter(|entry| entry.owes()).map(|entry| &entry.counter)
    }
}
