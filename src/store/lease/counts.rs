//! What became of the units that were leased.
//!
//! Each part of the map counts its own units under its lock; [`LeaseCounts`] is their sum, for operators and for
//! tests of the store's balance: `leased + owed = spent + returned + lost + held`.

use std::ops::AddAssign;

use super::debt::OVERDRAWN;
use crate::store::Taken;

/// Units a [`LeaseStore`](crate::LeaseStore) has leased or overdrawn, and what became of them.
///
/// All but `owed` are sums since the store was built, over all keys. They are summed part by part, so while requests
/// are decided they may differ from each other by what happens meanwhile.
///
/// # Examples
///
/// ```
/// use tollgate::store::LeaseCounts;
/// use tollgate::{LeaseStore, MemoryStore};
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
    pub(super) fn spend(&mut self, taken: &Taken) {
        self.spent += taken.units;
        self.owed += if taken.stamp < OVERDRAWN { 0 } else { taken.units };
    }

    /// Logs the counts in one line at level `info`, unless nothing was ever leased.
    pub(super) fn log(self) {
        let Self { leased, spent, returned, lost, owed } = self;
        if leased > 0 {
            tracing::info!(code = "units_leased", leased, spent, returned, lost, owed, "units were leased");
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
