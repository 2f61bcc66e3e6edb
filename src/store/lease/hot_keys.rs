//! A bounded map of hot keys, and the counts by which keys become hot.
//!
//! Keys that are not hot use only a share of a cell. The cells are a fixed array, so invented keys do not make it grow.
//! A cell counts the requests of one key. Requests of other keys in the cell lower the count, and in the end one of
//! these keys takes the cell over, similar to the majority vote of Boyer and Moore.
//!
//! Each shard counts its units. [`LeaseCounts`] is the sum, for operators and for tests of the store's balance:
//! `leased + owed = spent + returned + lost + held`.
//!
//! Invariant: the number of hot keys is bounded. When the table is full, a key stays cold, and the inner store decides
//! it.

use std::ops::AddAssign;

use super::hot_key::{Back, HOT, HotKey, OVERDRAWN, period};
use crate::store::map::Table;
use crate::store::{Counter, ReceiptItem};

/// Cells per entry of the table.
const CELLS: usize = 4;

#[derive(Debug)]
pub(super) struct HotKeys {
    pub(super) table: Table<HotKey>,
    /// [`CELLS`] per entry, 16 bytes each, allocated at once.
    cells: Box<[Cell]>,
    pub(super) counts: LeaseCounts,
    overdraft: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    tag: u32,
    /// Its requests since `start`, less those of other keys.
    requests: u32,
    /// Start of its period, in microseconds.
    start: u64,
}

impl Cell {
    /// Returns this key's count, or 0 if the cell still belongs to another key. A period ends early if the clock steps
    /// back.
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

    /// Counts the request of a cold key. The request that makes the key hot gets an entry, if there is one left.
    pub(super) fn heat(&mut self, hash: u64, counter: &Counter, now: u64) -> Option<&mut HotKey> {
        let (cells, overdraft) = (&mut self.cells, self.overdraft);
        let make = || {
            let requests = note(cells, hash, now, period(counter.quota(), overdraft));
            (requests >= HOT).then(|| HotKey::new(hash, counter, now, overdraft))
        };
        // If the table is full, the key stays cold.
        self.table.find_or_insert(hash, |hot| hot.is(counter), make, |hot| !hot.is_idle(now))
    }

    pub(super) fn sweep(&mut self, now: u64, all: bool, backs: &mut Vec<Back>) {
        self.table.retain(|hot| hot.sweep(now, all, backs));
    }

    pub(super) fn forget(&mut self, hash: u64, counter: &Counter) {
        let Some(hot) = self.table.remove(hash, |hot| hot.is(counter)) else { return };
        let (left, owed) = hot.into_units();
        self.counts.lost += left;
        self.counts.owed -= owed;
        self.counts.spent -= owed;
    }

    /// Returns the inner store's stamp. `None` for overdrawn units that are not paid.
    pub(super) fn stamp_of(&mut self, hash: u64, taken: &ReceiptItem) -> Option<u64> {
        let is_leased = taken.stamp < OVERDRAWN;
        if is_leased { Some(taken.stamp) } else { self.find(hash, &taken.counter)?.stamp_of(taken.stamp) }
    }

    /// Returns the units that are done, the units that the inner store must refund, and its stamp of these.
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

/// The lower half of the hash selects the cell, the upper half is the tag.
fn note(cells: &mut [Cell], hash: u64, now: u64, period: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, reason = "some bits pick a cell, others distinguish keys")]
    let (share, tag) = (u64::from(hash as u32), (hash >> 32) as u32);
    // Scales the bits to the number of cells, which need not be a power of two.
    #[allow(clippy::cast_possible_truncation, reason = "it is less than there are cells")]
    let cell = ((share * cells.len() as u64) >> 32) as usize;
    cells[cell].note(tag, now, period).into()
}

/// Counts of units that a [`LeaseStore`](crate::store::LeaseStore) has leased or overdrawn.
///
/// All but `owed` are sums over all keys since the store was built. They are read shard by shard, so while requests are
/// decided they may not match exactly.
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
    /// Units charged in the inner store: by leases, for debts, and by handlers of requests that were allowed here.
    /// Includes units of failed calls that may have been charged.
    pub leased: u64,
    /// Units spent on requests, less those that were refunded, or were owed when their counter was reset.
    pub spent: u64,
    /// Units returned to the inner store.
    pub returned: u64,
    /// Units neither spent nor returned: their window had ended, the bucket had been replenished, the counter was
    /// reset, or the lease call failed and may have charged them.
    pub lost: u64,
    /// Units now spent that the inner store is not known to have charged: at most an overdraft for each hot key.
    pub owed: u64,
}

impl LeaseCounts {
    /// Returns the units held now, to be spent or returned: `leased + owed - spent - returned - lost`, at least 0.
    pub fn held(&self) -> u64 {
        let had = self.leased.saturating_add(self.owed);
        had.saturating_sub(self.spent).saturating_sub(self.returned).saturating_sub(self.lost)
    }

    pub(super) fn spend(&mut self, taken: &ReceiptItem) {
        self.spent += taken.units;
        self.owed += if taken.stamp < OVERDRAWN { 0 } else { taken.units };
    }

    /// Logs at level `info`, unless nothing was ever leased.
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
