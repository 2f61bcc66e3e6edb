//! Charging what keys owe where no lease is going to pay it.
//!
//! Debts of keys without a call in flight come in: their lease was refused or failed, or the store is closed. Each is
//! one settlement of the inner store by [`Change::Charge`], which it makes whether or not anybody waits for it.
//!
//! | result | the units |
//! | --- | --- |
//! | charged | are paid; what was refunded meanwhile is returned, and what the store left out is never charged |
//! | not sent | are owed as before, until the next sweep |
//! | not known | count as charged, and are not sent again |
//!
//! A failed lease call may have charged its units, those owed included. So a unit counts at most once more than it was
//! used, and nowhere if its charge is lost on the way.

use std::sync::Arc;

use tokio::runtime::Handle as Runtime;
use tokio::sync::OwnedSemaphorePermit;

use super::hot_keys::HotKeys;
use super::leases::Leases;
use super::sweeping::sweep_by_task;
use crate::core::Error;
use crate::store::{Answer, Applied, Change, Counter, Receipt, Settlement, Store, Taken};

/// A charge in flight. Dropped without a result, as when its runtime ends, it may have been made.
struct DebtCharge {
    leases: Arc<Leases>,
    hash: u64,
    counter: Counter,
    units: u64,
    call: u64,
    ended: bool,
    /// One of [`MOST_CALLS`](super::leases::MOST_CALLS).
    _permit: OwnedSemaphorePermit,
}

/// Charges what a key owes, unless a call for it is in flight, or too many are for others.
pub(super) fn charge(leases: &Arc<Leases>, counter: &Counter) {
    let Ok(permit) = Arc::clone(&leases.calls).try_acquire_owned() else { return };
    let hash = leases.hash(counter);
    let mut hot_keys = leases.shards.lock(hash);
    let Some(hot) = hot_keys.find(hash, counter).filter(|hot| hot.is_in_debt()) else { return };
    let (counter, units, call) = (hot.counter.clone(), hot.debt.owed, leases.number());
    (hot.in_flight, hot.debt.may_grow) = (Some(call), false);
    drop(hot_keys);
    let mut charge =
        DebtCharge { leases: Arc::clone(leases), hash, counter, units, call, ended: false, _permit: permit };
    match leases.charge(charge.counter.clone(), units) {
        Answer::Ready(result) => charge.completed(&result),
        Answer::Pending(pending) => {
            if let Ok(runtime) = Runtime::try_current() {
                runtime.spawn(async move { charge.completed(&pending.await) });
                sweep_by_task(leases);
            }
        }
    }
}

impl DebtCharge {
    fn completed(&mut self, result: &Result<Vec<Applied>, Error>) {
        self.ended = true;
        let leases = &self.leases;
        let applied = result.as_ref().ok().and_then(|applied| applied.first());
        let is_unsent = result.as_ref().is_err_and(Error::is_unsent);
        let mut hot_keys = leases.shards.lock(self.hash);
        let HotKeys { table, counts, .. } = &mut *hot_keys;
        let charged = applied.map_or(if is_unsent { 0 } else { self.units }, |applied| applied.units);
        counts.leased += charged;
        let hot = table.find_mut(self.hash, |hot| hot.is(&self.counter));
        let Some(hot) = hot.filter(|hot| hot.in_flight == Some(self.call)) else {
            // It was reset meanwhile.
            counts.lost += charged;
            return;
        };
        hot.in_flight = None;
        if is_unsent {
            return;
        }
        let owed = hot.debt.owed;
        let (refund, cut) = hot.debt.charged(self.call, applied);
        counts.owed -= owed;
        counts.unpaid += cut;
        counts.returned += refund;
        // What was refunded of a charge whose result is not known.
        counts.lost += charged + cut - owed - refund;
        drop(hot_keys);
        if let (Some(applied), Some(&store), 1..) = (applied, leases.inner_id.get(), refund) {
            let receipt = Receipt::of_one(store, Taken::new(self.counter.clone(), refund, applied.stamp));
            drop(leases.inner.settle(receipt, &[Settlement::new(0, Change::Refund(refund))]));
        }
    }
}

impl Drop for DebtCharge {
    fn drop(&mut self) {
        if !self.ended {
            self.completed(&Err(Error::store("a charge was stopped", "its runtime has ended")));
        }
    }
}
