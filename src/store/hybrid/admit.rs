//! Admitting a request before it is charged.
//!
//! The checks come in; an admitted decision goes out if the balances of all keys cover them, and `None` otherwise:
//! nothing is ever refused here. Under the locks of all parts, either every check is spent, or none is.
//! Each key that has no ticking task receives one; the tasks are started after the locks were released, as a runtime
//! that ends drops them at once, and dropping one locks.
//!
//! Outside of a tokio runtime, when none was seen before, nothing is admitted here, as no task would charge it.

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

/// Admits a request that the rooms of all its keys cover; `None` leaves the decision to the inner store.
///
/// A key covers nothing while its part has strays, while the inner store decides over it, under another
/// quota than that of the balance, or when the last look is stale. A closed store admits nothing.
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
    // A runtime that ends drops the task, which takes the lock.
    drop(locked);
    ticking.into_iter().for_each(|task| drop(runtime.spawn(task.run())));
    let decision = Decision::new(outcomes, Source::Lease);
    Some(Decided { decision, receipt: Receipt::new(shared.id, taken) })
}
