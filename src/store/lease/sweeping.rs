//! Returning the leases that are over, or whose key is idle.
//!
//! Two things sweep: requests, one of which sweeps all parts every 50 ms, and a task, for the time when there
//! are no requests. The task begins with the first lease call that an inner store does not decide at once, and ends
//! when no lease is held or in flight; it holds a weak reference, so it does not keep a store that was dropped.
//! There is at most one: see `swept`.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::leases::{Leases, MOST_CALLS};

/// How often leases are looked through for those that are over, in microseconds.
const SWEEP: u64 = 50_000;

/// Sweeps if none did for [`SWEEP`]; of several requests that find it due, one does.
///
/// A clock that stepped back by more than that makes it due, too.
pub(super) fn sweep_if_due(leases: &Leases, now: u64) {
    let due = leases.next_sweep.load(Ordering::Relaxed);
    if now < due && due - now <= SWEEP {
        return;
    }
    let turn = leases.next_sweep.compare_exchange(due, now + SWEEP, Ordering::Relaxed, Ordering::Relaxed);
    if turn.is_ok() {
        sweep(leases, now);
    }
}

/// Starts the task that sweeps as long as there are leases, unless it runs. Needs a tokio runtime.
pub(super) fn sweep_by_task(leases: &Arc<Leases>) {
    if leases.swept.swap(true, Ordering::SeqCst) {
        return;
    }
    let mut sweeping = Sweeping(Arc::downgrade(leases));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_micros(SWEEP)).await;
            let Some(leases) = sweeping.0.upgrade() else { return };
            if is_at_rest(&leases) {
                leases.swept.store(false, Ordering::SeqCst);
                // A call made just before relied on this task.
                if is_at_rest(&leases) || leases.swept.swap(true, Ordering::SeqCst) {
                    drop(mem::take(&mut sweeping.0));
                    return;
                }
            }
        }
    });
}

/// Sweeps all parts, one lock after the other; returns whether leases are left.
fn sweep(leases: &Leases, now: u64) -> bool {
    let (mut backs, mut held) = (Vec::new(), false);
    for mut hot_keys in leases.shards.each() {
        hot_keys.sweep(now, &mut backs);
        held |= hot_keys.holds_leases();
    }
    leases.give_back(backs, now);
    held
}

/// Sweeps; returns whether no lease is held or in flight.
fn is_at_rest(leases: &Leases) -> bool {
    let in_flight = leases.calls.available_permits() < MOST_CALLS as usize;
    !sweep(leases, leases.now()) && !in_flight
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
