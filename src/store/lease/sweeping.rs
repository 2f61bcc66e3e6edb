//! Returning the leases that are over, or whose key is idle, and charging what no lease pays.
//!
//! Two things sweep: requests, one of which sweeps all parts every 50 ms, and a task, for the time when there
//! are no requests. The task begins with the first call that an inner store does not decide at once, and ends with its
//! runtime or with the store, of which it holds a weak reference. There is at most one: see `swept`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::charge::charge;
use super::leases::Leases;

/// How often leases are looked through for those that are over, in microseconds.
const SWEEP: u64 = 50_000;

/// Sweeps if none did for [`SWEEP`]; of several requests that find it due, one does.
///
/// A clock that stepped back by more than that makes it due, too.
pub(super) fn sweep_if_due(leases: &Arc<Leases>, now: u64) {
    let due = leases.next_sweep.load(Ordering::Relaxed);
    if now < due && due - now <= SWEEP {
        return;
    }
    let turn = leases.next_sweep.compare_exchange(due, now + SWEEP, Ordering::Relaxed, Ordering::Relaxed);
    if turn.is_ok() {
        sweep(leases, now);
    }
}

/// Starts the task that sweeps, unless it runs. Needs a tokio runtime.
pub(super) fn sweep_by_task(leases: &Arc<Leases>) {
    if leases.swept.swap(true, Ordering::SeqCst) {
        return;
    }
    let sweeping = Sweeping(Arc::downgrade(leases));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_micros(SWEEP)).await;
            let Some(leases) = sweeping.0.upgrade() else { return };
            sweep(&leases, leases.now());
        }
    });
}

/// Sweeps all parts, one lock after the other.
pub(super) fn sweep(leases: &Arc<Leases>, now: u64) {
    let (mut backs, mut debtors) = (Vec::new(), Vec::new());
    for mut hot_keys in leases.shards.each() {
        hot_keys.sweep(now, &mut backs, &mut debtors);
    }
    leases.give_back(backs, now);
    for counter in &debtors {
        charge(leases, counter);
    }
}

/// A task that sweeps; one that ends with its runtime makes room for another.
struct Sweeping(Weak<Leases>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        if let Some(leases) = self.0.upgrade() {
            leases.swept.store(false, Ordering::SeqCst);
        }
    }
}
