//! The end of a lease store.
//!
//! All leases come out of the map and are returned to the inner store, in parts of at most [`AT_ONCE`], as inner stores
//! bound how many settlements they have on their way. Before the next part is handed over,
//! the inner store has to decide a look at each counter that got units. Once a look fails no further ones are made, but
//! returning continues.
//!
//! # Cancellation
//!
//! A `close` that is dropped returns what is left at once, from `Returning`'s destructor.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::counts::LeaseCounts;
use super::hot_key::Back;
use super::leases::{Leases, MOST_CALLS};
use super::sweeping::sweep;
use crate::store::{Ask, Check, Counter, Store};

/// Leases handed over in one go when the store is closed: inner stores bound how many settlements are
/// on their way to them.
const AT_ONCE: usize = 1_024;

/// Leases that go back part by part; all that are left at once when this is dropped.
struct Returning<'a> {
    /// Where units are counted as they are returned.
    leases: &'a Leases,
    /// The leases that are left.
    backs: Vec<Back>,
}

impl Returning<'_> {
    /// Hands the next part over; returns the counters that units go back to.
    fn hand_over(&mut self) -> Vec<Counter> {
        let part = self.backs.split_off(self.backs.len().saturating_sub(AT_ONCE));
        let counters = part.iter().filter(|(lot, _)| lot.left > 0).map(|(lot, _)| lot.counter().clone()).collect();
        self.leases.give_back(part, self.leases.now());
        counters
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.leases.give_back(mem::take(&mut self.backs), self.leases.now());
    }
}

/// Takes no more leases, returns all there are, and charges what is owed; resolves to the counts of all units.
///
/// The first part is handed over before this waits for anything, and the rest when it is dropped, at the latest. Then
/// it waits for the calls in flight: leases are returned as they come, and what they left owed is charged.
pub(super) async fn close(leases: &Arc<Leases>) -> LeaseCounts {
    leases.closed.store(true, Ordering::SeqCst);
    let mut in_flight = Vec::new();
    let mut returning = Returning { leases, backs: leases.take_all(&mut in_flight) };
    let mut responds = true;
    while !returning.backs.is_empty() {
        let counters = returning.hand_over();
        responds = responds && all_respond(leases, counters).await;
    }
    for _ in 0..2 {
        sweep(leases, leases.now());
        // When all calls have ended, none is made but charges.
        drop(leases.calls.acquire_many(MOST_CALLS).await);
    }
    leases.calls.close();
    if responds {
        all_respond(leases, in_flight).await;
    }
    leases.counts()
}

/// Returns whether the inner store decides a look at each of these counters; it stops at the first that fails.
async fn all_respond(leases: &Leases, counters: Vec<Counter>) -> bool {
    tokio::task::yield_now().await;
    for counter in counters {
        if leases.inner.decide(&[Check::new(counter, 0)], Ask::default()).wait().await.is_err() {
            return false;
        }
    }
    true
}
