//! A bounded part of the hot keys, and of the counts by which a key becomes one.

use hashbrown::HashTable;

use super::counts::LeaseCounts;
use super::entry::{Back, Entry};
use super::lot::lifetime;
use super::rate::HOT;
use crate::store::Counter;

/// Cells for each hot key there is room for.
const CELLS: usize = 4;

/// Hot keys are in a table. Of the others only a count is kept, in a cell shared by all keys whose
/// hash has the same bits: nothing a client sends makes it grow.
#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    room: usize,
    cells: Box<[Cell]>,
    pub(super) counts: LeaseCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    tag: u32,
    requests: u32,
    start: u64,
}

impl Cell {
    /// Counts a request; another key's leave in place the one that comes more often.
    fn note(&mut self, tag: u32, now: u64, period: u64) -> u32 {
        let stale = now.saturating_sub(self.start) >= period || now < self.start;
        if self.tag == tag && !stale {
            self.requests += 1;
        } else if stale || self.requests <= 1 {
            *self = Self { tag, requests: 1, start: now };
        } else {
            self.requests -= 1;
            return 0;
        }
        self.requests
    }
}

impl Shard {
    pub(super) fn new(room: usize) -> Self {
        let cells = vec![Cell::default(); room * CELLS].into();
        Self { table: HashTable::new(), room, cells, counts: LeaseCounts::default() }
    }

    pub(super) fn find(&mut self, hash: u64, counter: &Counter) -> Option<&mut Entry> {
        self.table.find_mut(hash, |entry| entry.is(counter))
    }

    /// The entry of a hot key; `None` for one that is not, or not yet.
    pub(super) fn heat(&mut self, hash: u64, counter: &Counter, now: u64) -> Option<&mut Entry> {
        let table = match self.table.find_entry(hash, |entry| entry.is(counter)) {
            Ok(hot) => return Some(hot.into_mut()),
            Err(cold) => cold.into_table(),
        };
        #[allow(clippy::cast_possible_truncation, reason = "some bits pick a cell, others tell keys apart")]
        let (share, tag) = (u64::from(hash as u32), (hash >> 32) as u32);
        // As much of all cells as the bits are of what they can be: no power of two is needed.
        #[allow(clippy::cast_possible_truncation, reason = "it is less than there are cells")]
        let cell = ((share * self.cells.len() as u64) >> 32) as usize;
        let requests = self.cells[cell].note(tag, now, lifetime(&counter.quota));
        if u64::from(requests) < HOT || !has_room(table, self.room, now) {
            return None;
        }
        let hot = table.insert_unique(hash, Entry::new(hash, counter, now), |entry| entry.hash);
        Some(hot.into_mut())
    }

    /// Gives up the leases that are over or whose key is idle, and forgets keys idle for long.
    pub(super) fn sweep(&mut self, now: u64, backs: &mut Vec<Back>) {
        self.table.retain(|entry| {
            let idle = entry.rate.idle(now) >= lifetime(&entry.counter.quota) / 2;
            entry.give_up(backs, |lot| idle || lot.is_over(now));
            !entry.is_idle(now)
        });
    }

    pub(super) fn holds_leases(&self) -> bool {
        self.table.iter().any(|entry| !entry.lots.is_empty())
    }

    /// The counters of the lease calls in flight.
    pub(super) fn asked(&self) -> Vec<Counter> {
        let asking = self.table.iter().filter(|entry| entry.asking.is_some());
        asking.map(|entry| entry.counter.clone()).collect()
    }

    /// Gives up every lease.
    pub(super) fn clear(&mut self, backs: &mut Vec<Back>) {
        self.table.iter_mut().for_each(|entry| entry.give_up(backs, |_| true));
        self.table.clear();
    }

    /// Forgets a key; its leases are lost.
    pub(super) fn remove(&mut self, hash: u64, counter: &Counter) -> Option<Entry> {
        self.table.find_entry(hash, |entry| entry.is(counter)).ok().map(|found| found.remove().0)
    }
}

/// A key that becomes hot while all places are taken stays cold.
fn has_room(table: &mut HashTable<Entry>, room: usize, now: u64) -> bool {
    if table.len() >= room {
        table.retain(|entry| !entry.is_idle(now));
    }
    table.len() < room
}
