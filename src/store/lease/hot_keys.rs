//! A bounded part of the hot keys, and of the counts by which a key becomes one.
//!
//! Hashes and counters come in, hot keys go out. Keys that are not hot cost nothing but a share of a cell: cells are
//! a fixed array, so clients that make up keys make nothing grow. A cell counts the requests of one key at a time;
//! others that share it count it down and take it over when it is at its end (much as in the majority vote of Boyer
//! and Moore).
//!
//! Each part counts what became of its units; [`LeaseCounts`] is the sum, for operators and for tests of the store's
//! balance: `leased + owed = spent + returned + lost + held`.
//!
//! Invariant: at most as many hot keys as there is room for. A key that becomes hot while all places are taken stays
//! cold, and is decided by the inner store.

use std::ops::AddAssign;

use super::hot_key::{Back, HOT, HotKey, OVERDRAWN, period};
use crate::store::map::Table;
use crate::store::{Counter, ReceiptItem};

/// Cells for each hot key there is room for.
const CELLS: usize = 4;

/// Hot keys are in a table. Of the others only a count is kept, in a cell shared by all keys whose
/// hash has the same bits: nothing a client sends makes it grow.
#[derive(Debug)]
pub(super) struct HotKeys {
    /// The hot keys.
    pub(super) table: Table<HotKey>,
    /// [`CELLS`] for each place, allocated at once; 16 bytes each.
    cells: Box<[Cell]>,
    /// What became of the units of this part's keys.
    pub(super) counts: LeaseCounts,
    /// The most units a key may owe.
    overdraft: u64,
}

/// The count of one cold key among those that share the cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Other bits of the hash of the key that is counted.
    tag: u32,
    /// How many requests of it there were since `start`, less those of others.
    requests: u32,
    /// When its period began, in microseconds.
    start: u64,
}

impl Cell {
    /// Counts a request; another key's leave in place the one that comes more often.
    ///
    /// Returns the count of this key, and 0 if the cell stays another's. A period that is over, or a clock that
    /// stepped back, begins anew.
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

impl HotKeys {
    pub(super) fn new(room: usize, overdraft: u64) -> Self {
        let cells = vec![Cell::default(); room * CELLS].into();
        Self { table: Table::new(room), cells, counts: LeaseCounts::default(), overdraft }
    }

    pub(super) fn find(&mut self, hash: u64, counter: &Counter) -> Option<&mut HotKey> {
        self.table.find_mut(hash, |hot| hot.is(counter))
    }

    /// The entry of a hot key; `None` for one that is not, or not yet.
    ///
    /// The request is counted where the key is not hot; the one that makes it hot finds an entry, if there is room.
    pub(super) fn heat(&mut self, hash: u64, counter: &Counter, now: u64) -> Option<&mut HotKey> {
        let (cells, overdraft) = (&mut self.cells, self.overdraft);
        let make = || {
            let requests = note(cells, hash, now, period(counter.quota(), overdraft));
            (requests >= HOT).then(|| HotKey::new(hash, counter, now, overdraft))
        };
        // A key that becomes hot while all places are taken stays cold.
        self.table.find_or_insert(hash, |hot| hot.is(counter), make, |hot| !hot.is_idle(now))
    }

    pub(super) fn sweep(&mut self, now: u64, all: bool, backs: &mut Vec<Back>) {
        self.table.retain(|hot| hot.sweep(now, all, backs));
    }

    /// Forgets a counter that is reset: units that are held are lost, and units that are owed are not charged.
    pub(super) fn forget(&mut self, hash: u64, counter: &Counter) {
        let Some(hot) = self.table.remove(hash, |hot| hot.is(counter)) else { return };
        let (left, owed) = hot.into_units();
        self.counts.lost += left;
        self.counts.owed -= owed;
        self.counts.spent -= owed;
    }

    /// Returns the inner store's stamp of units that were taken here; `None` for overdrawn ones that are not paid.
    pub(super) fn stamp_of(&mut self, hash: u64, taken: &ReceiptItem) -> Option<u64> {
        let is_leased = taken.stamp < OVERDRAWN;
        if is_leased { Some(taken.stamp) } else { self.find(hash, &taken.counter)?.stamp_of(taken.stamp) }
    }

    /// Takes units back that a request spent here; returns how many are done with, and how many have to be refunded by
    /// the inner store, with its stamp.
    ///
    /// All of them no longer count as spent.
    pub(super) fn take_back(&mut self, hash: u64, taken: &ReceiptItem, units: u64, now: u64) -> (u64, u64, u64) {
        let (owed, paid, stamp, is_back) = match self.find(hash, &taken.counter) {
            Some(hot) => hot.take_back(taken.stamp, units, now),
            None if taken.stamp < OVERDRAWN => (0, units, taken.stamp, false),
            None => (0, 0, 0, false),
        };
        self.counts.spent = self.counts.spent.saturating_sub(owed + paid);
        self.counts.owed -= owed;
        self.counts.returned += if is_back { 0 } else { paid };
        if is_back { (owed + paid, 0, stamp) } else { (owed, paid, stamp) }
    }
}

/// Counts a request of a key that is not hot; returns how many there were lately.
///
/// The lower half of the hash picks the cell, the upper half is the tag.
fn note(cells: &mut [Cell], hash: u64, now: u64, period: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, reason = "some bits pick a cell, others distinguish keys")]
    let (share, tag) = (u64::from(hash as u32), (hash >> 32) as u32);
    // As much of all cells as the bits are of what they can be: no power of two is needed.
    #[allow(clippy::cast_possible_truncation, reason = "it is less than there are cells")]
    let cell = ((share * cells.len() as u64) >> 32) as usize;
    cells[cell].note(tag, now, period).into()
}

/// Units a [`LeaseStore`](crate::store::LeaseStore) has leased or overdrawn, and what became of them.
///
/// All but `owed` are sums since the store was built, over all keys. They are summed part by part, so while requests
/// are decided they may differ from each other by what happens meanwhile.
///
/// # Examples
///
/// ```
/// use tollgate::store::{LeaseCounts, LeaseStore};
/// use tollgate::MemoryStore;
///
/// let store = LeaseStore::new(MemoryStore::new());
/// assert_eq!(store.counts(), LeaseCounts::default());
/// assert_eq!(store.counts().held(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Units charged in the inner store by leases, for debts, and by handlers of requests that were admitted here; those
    /// of failed calls that may have been charged included.
    pub leased: u64,
    /// Units spent on requests, less those that were refunded, or were owed when their counter was reset.
    pub spent: u64,
    /// Units returned to the inner store.
    pub returned: u64,
    /// Units neither spent nor returned: their window had ended, the bucket had refilled meanwhile, the counter was
    /// reset, or the lease call failed and may have charged them.
    pub lost: u64,
    /// Units spent now that the inner store is not known to have charged: at most an overdraft for each hot key.
    pub owed: u64,
}

impl LeaseCounts {
    /// Returns the units held now, to be spent or returned: `leased + owed - spent - returned - lost`, and not less than
    /// 0.
    pub fn held(&self) -> u64 {
        let had = self.leased.saturating_add(self.owed);
        had.saturating_sub(self.spent).saturating_sub(self.returned).saturating_sub(self.lost)
    }

    /// Counts units that a request spent here: those of no lease are owed.
    pub(super) fn spend(&mut self, taken: &ReceiptItem) {
        self.spent += taken.units;
        self.owed += if taken.stamp < OVERDRAWN { 0 } else { taken.units };
    }

    /// Logs the counts in one line at level `info`, unless nothing was ever leased.
    pub(super) fn log(self) {
        let Self { leased, spent, returned, lost, owed } = self;
        if leased > 0 {
            tracing::info!(code = "units_leased", leased, spent, returned, lost, owed, "units leased");
        }
    }
}

impl AddAssign for LeaseCounts {
    fn add_assign(&mut self, other: Self) {
        self.leased += other.leased;
        self.spent += other.spent;
        self.returned += other.returned;
        self.lost += other.lost;
        self.owed += other.owed;
    }
}
