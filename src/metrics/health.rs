//! What a layer learns of its store.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use metrics::{Counter, Gauge};

use super::names::{BREAKER_CHANGES, BREAKERS_OPEN, STORE_FAILURES};
use crate::core::Error;

/// How the store of a layer does. Its circuit breakers are no longer open when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    handles: OnceLock<Handles>,
    /// How many of its circuit breakers are open.
    open: AtomicU32,
}

#[derive(Debug)]
struct Handles {
    timeouts: Counter,
    connections: Counter,
    others: Counter,
    opened: Counter,
    closed: Counter,
    open: Gauge,
}

impl StoreHealth {
    /// The store was asked and failed.
    pub(crate) fn failed(&self, error: &Error) {
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

    /// A closed circuit breaker has opened.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.handles().open.increment(1.0);
        self.handles().opened.increment(1);
    }

    /// A circuit breaker has closed again.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.handles().open.decrement(1.0);
        self.handles().closed.increment(1);
    }

    fn handles(&self) -> &Handles {
        self.handles.get_or_init(Handles::new)
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

/// Makes all of it seen at 0: an increase from nothing is none to those who watch.
pub(super) fn announce() {
    let _ = Handles::new();
}
