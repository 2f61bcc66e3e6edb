//! Where portions come from, and what is not used is refunded to.

use std::sync::Arc;

use smallvec::SmallVec;

use super::line::Lot;
use crate::store::{Change, FailureStore, Receipt, Settlement, Store};
use crate::telemetry::Telemetry;

/// The store of a pool, behind the rule for failures.
pub(in crate::limiter) type PoolStore = Arc<FailureStore>;

/// Where portions come from and are refunded to; it does not hold the pool.
#[derive(Clone)]
pub(super) struct Lessor {
    pub(super) store: PoolStore,
    pub(super) telemetry: Arc<Telemetry>,
}

impl Lessor {
    /// Refunds what is left of a lot, and counts it.
    pub(super) fn close(&self, lot: Lot) {
        let Lot { receipt, units, left, .. } = lot;
        for taken in receipt.taken() {
            self.telemetry.portion_closed(taken.counter.policy(), units - left, left);
        }
        self.refund(receipt, left);
    }

    /// Refunds units of a receipt.
    pub(super) fn refund(&self, receipt: Receipt, units: u64) {
        let changes: SmallVec<[Settlement; 2]> = match units {
            0 => SmallVec::new(),
            _ => (0..receipt.taken().len()).map(|check| Settlement::new(check, Change::Refund(units))).collect(),
        };
        // The changes are made whether or not their result is waited for.
        drop(self.store.settle(receipt, &changes));
    }
}
