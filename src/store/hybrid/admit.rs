//! The way of a request that is admitted before it is paid.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::shared::SharedBalances;
use super::ticking::Ticking;
use crate::core::decision::{Decision, Outcome, Source};
use crate::store::around::is_plain;
use crate::store::{Check, Decided, Receipt, Taken};

/// Admits a request that the rooms of all its keys cover.
pub(super) fn admit(shared: &Arc<SharedBalances>, checks: &[Check]) -> Option<Decided> {
    if !is_plain(checks) {
        return None;
    }
    let (runtime, now) = (shared.runtime()?, Instant::now());
    let mut locked = shared.lock_all(checks);
    let closed = shared.closed.load(Ordering::SeqCst);
    let covered = |(index, check): (usize, &Check)| {
        let (hash, balances) = locked.of(index);
        let strays = balances.strays > 0;
        let balance = balances.find(hash, &check.counter);
        balance.is_some_and(|balance| !strays && balance.covers(check, now, shared.fresh()))
    };
    if closed || !checks.iter().enumerate().all(covered) {
        return None;
    }
    let (mut outcomes, mut taken) = (SmallVec::<[Outcome; 2]>::new(), SmallVec::<[Taken; 1]>::new());
    let mut ticking = SmallVec::<[Ticking; 1]>::new();
    for (index, check) in checks.iter().enumerate() {
        let (hash, balances) = locked.of(index);
        let balance = balances.find(hash, &check.counter).expect("it was covered");
        let (outcome, part) = balance.spend(check, now);
        outcomes.push(outcome);
        taken.push(part);
        if !mem::replace(&mut balance.ticks, true) {
            ticking.push(Ticking::new(Arc::clone(shared), hash, balance.counter.clone()));
        }
    }
    // A runtime that ends drops what it is given, and that locks.
    drop(locked);
    ticking.into_iter().for_each(|task| drop(runtime.spawn(task.pay())));
    let decision = Decision::new(outcomes, Source::Lease);
    Some(Decided { decision, receipt: Receipt::new(shared.id, taken) })
}
