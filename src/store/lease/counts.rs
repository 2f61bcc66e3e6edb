//! What became of the units that were leased.

use std::ops::AddAssign;

/// Units a [`LeaseStore`](crate::LeaseStore) has leased, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Charged in the inner store in advance.
    pub leased: u64,
    /// Of these, spent on requests.
    pub spent: u64,
    /// Given back to the inner store.
    pub returned: u64,
    /// Neither spent nor given back: their window had ended, the bucket had refilled meanwhile, the
    /// counter was reset, or the lease call failed and may have charged them.
    pub lost: u64,
}

impl LeaseCounts {
    /// Units held now, to be spent or given back.
    pub fn held(&self) -> u64 {
        self.leased.saturating_sub(self.spent).saturating_sub(self.returned).saturating_sub(self.lost)
    }

    /// A line in the log, for the end of a store that leased something.
    pub(super) fn tell(self) {
        let Self { leased, spent, returned, lost } = self;
        if leased > 0 {
            tracing::info!(leased, spent, returned, lost, "units were leased");
        }
    }
}

impl AddAssign for LeaseCounts {
    fn add_assign(&mut self, other: Self) {
        self.leased += other.leased;
        self.spent += other.spent;
        self.returned += other.returned;
        self.lost += other.lost;
    }
}
