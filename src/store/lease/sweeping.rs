//! Returning the leases that are over, or whose key is idle, and charging what no lease pays.
//!
//! A task sweeps all parts every 50 ms. It begins with the first lease call in a tokio runtime, and ends with the runtime
//! or with the store, of which it holds a weak reference. There is at most one: see `swept`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use super::leases::Leases;

/// How often leases are looked through for those that are over.
const SWEEP: Duration = Duration::from_millis(50);

/// Starts the task that sweeps, unless it runs, or there is no runtime.
pub(super) fn sweep_by_task(leases: &Arc<Leases>) {
    let Ok(runtime) = Runtime::try_current() else { return };
    if leases.swept.swap(true, Ordering::SeqCst) {
        return;
    }
    let sweeping = Sweeping(Arc::downgrade(leases));
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            let Some(leases) = sweeping.0.upgrade() else { return };
            let (now, mut backs) = (leases.now(), Vec::new());
            let closed = leases.closed.load(Ordering::SeqCst);
            for mut hot_keys in leases.shards.each() {
                hot_keys.sweep(now, closed, &mut backs);
            }
            leases.give_back(backs, now);
        }
    });
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
