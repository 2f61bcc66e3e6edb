//! The end of a lease store.
//!
//! All leases come out of the map and are returned to the inner store, in parts of at most [`AT_ONCE`], as inner stores
//! bound how many settlements they have on their way. Before the next part is handed over,
//! the inner store has to decide a look at each counter that got units. Once a look fails no further ones are made, but
//! returning continues.
//!
//! # Cancellation
//!
//! What is left by a `close` that is dropped is returned by the next sweep, or with the last clone.

use std::sync::atomic::Ordering;

use super::counts::LeaseCounts;
use super::leases::{Leases, MOST_CALLS};
use crate::store::{Ask, Check, Counter, Store};

/// Leases handed over in one go when the store is closed: inner stores bound how many settlements are
/// on their way to them.
const AT_ONCE: usize = 1_024;

/// Takes no more leases, returns all there are, and charges what is owed; resolves to the counts of all units.
///
/// The first part is handed over before this waits for anything. Then it waits for the lease calls in flight, which
/// return what they are granted; the second turn charges what they left owed.
pub(super) async fn close(leases: &Leases) -> LeaseCounts {
    leases.closed.store(true, Ordering::SeqCst);
    let mut responds = true;
    for _ in 0..2 {
        loop {
            let backs = leases.take(AT_ONCE);
            let counters: Vec<Counter> = backs.iter().map(|back| back.counter().clone()).collect();
            leases.give_back(backs, leases.now());
            responds = responds && all_respond(leases, &counters).await;
            if counters.len() < AT_ONCE {
                break;
            }
        }
        drop(leases.calls.acquire_many(MOST_CALLS).await);
    }
    leases.calls.close();
    leases.counts()
}

/// Returns whether the inner store decides a look at each of these counters; it stops at the first that fails.
async fn all_respond(leases: &Leases, counters: &[Counter]) -> bool {
    tokio::task::yield_now().await;
    for counter in counters {
        let look = [Check::new(counter.clone(), 0)];
        if leases.inner.decide(&look, Ask::default()).wait().await.is_err() {
            return false;
        }
    }
    true
}
