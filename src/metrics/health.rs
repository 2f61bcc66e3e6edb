//! Counts the failures of a layer's store, and the circuit breakers that are open.
//!
//! A layer has one breaker, or, on a Redis Cluster, one for each primary. Several layers add up in one gauge, so what
//! this one added is subtracted when it is dropped: a dropped layer leaves no breaker open.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use metrics::{Counter, Gauge};

use super::names::{BREAKER_CHANGES, BREAKERS_OPEN, STORE_FAILURES};
use crate::core::Error;
use crate::core::observer::ObserveStore;

/// The health of a layer's store. When it is dropped, its open breakers no longer count.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    handles: OnceLock<Handles>,
    /// How many of its breakers are not closed.
    open: AtomicU32,
}

/// The handles, registered with the first event.
#[derive(Debug)]
struct Handles {
    /// Decisions that the store did not make within its budget.
    timeouts: Counter,
    /// Decisions for which the store was not reached.
    connections: Counter,
    /// Decisions for which it returned an error.
    others: Counter,
    opened: Counter,
    closed: Counter,
    /// Breakers that are not closed, of all layers together.
    open: Gauge,
}

impl StoreHealth {
    fn handles(&self) -> &Handles {
        self.handles.get_or_init(Handles::new)
    }
}

impl ObserveStore for StoreHealth {
    fn failed(&self, error: &Error) {
        let handles = self.handles();
        let counter = if error.is_timeout() {
            &handles.timeouts
        } else if error.is_connection() {
            &handles.connections
        } else {
            &handles.others
        };
        counter.increment(1);
    }

    fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.handles().open.increment(1.0);
        self.handles().opened.increment(1);
    }

    fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.handles().open.decrement(1.0);
        self.handles().closed.increment(1);
    }
}

impl Drop for StoreHealth {
    fn drop(&mut self) {
        let open = *self.open.get_mut();
        if open > 0 {
            self.handles().open.decrement(f64::from(open));
        }
    }
}

impl Handles {
    fn new() -> Self {
        let failures = |kind| STORE_FAILURES.counter([("kind", kind)]);
        let changes = |to| BREAKER_CHANGES.counter([("to", to)]);
        Self {
            timeouts: failures("timeout"),
            connections: failures("connection"),
            others: failures("store"),
            opened: changes("open"),
            closed: changes("closed"),
            open: BREAKERS_OPEN.gauge(),
        }
    }
}

/// Registers all series, so that they are seen at 0: Prometheus sees no increase in a series that begins at 1.
pub(super) fn announce() {
    let _ = Handles::new();
}
