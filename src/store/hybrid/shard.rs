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
    /// Where the count of resets begins for keys that have no entry: not before that of any entry dropped.
    epoch: u64,
}

impl Shard {
    pub(super) fn new(room: usize) -> Self {
        Self { table: HashTable::new(), room, strays: 0, epoch: 0 }
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
            self.table.insert_unique(hash, Entry::new(hash, counter, self.epoch), |entry| entry.hash);
        }
        self.find(hash, counter)
    }

    /// Drops what says nothing any more; else some key of which nothing is owed.
    fn make_room(&mut self, now: Instant, fresh: Duration) {
        self.retain(|entry| !entry.is_quiet() || entry.age(now) < fresh);
        if self.table.len() >= self.room {
            let mut evicted = false;
            self.retain(|entry| {
                let evict = !evicted && entry.is_quiet();
                evicted |= evict;
                !evict
            });
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        let epoch = &mut self.epoch;
        self.table.retain(|entry| {
            let keeps = keep(entry);
            *epoch = if keeps { *epoch } else { entry.epoch.max(*epoch) };
            keeps
        });
    }

    /// How often a key was reset.
    pub(super) fn epoch(&mut self, hash: u64, counter: &Counter) -> u64 {
        let none = self.epoch;
        self.find(hash, counter).map_or(none, |entry| entry.epoch)
    }

    /// Nothing is owed for a key that is reset, and nothing goes back of what was taken before.
    pub(super) fn forget(&mut self, hash: u64, counter: &Counter) {
        match self.find(hash, counter) {
            Some(entry) => entry.forget(entry.epoch + 1),
            None => self.epoch += 1,
        }
    }

    /// The counters something is owed for.
    pub(super) fn debtors(&self) -> impl Iterator<Item = &Counter> {
        self.table.iter().filter(|entry| entry.owes()).map(|entry| &entry.counter)
    }
}
