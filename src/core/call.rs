//! Identity of a call to a server that several decisions shared.
//!
//! Such decisions fail or succeed together. Receipts and errors carry the [`CallId`], so that circuit breakers and
//! metrics count the call once ([`CountedCalls`]), and not once per decision.

mod counted;
#[cfg(test)]
mod models;

use std::num::NonZeroU64;

pub(crate) use counted::CountedCalls;
use sync::{AtomicU64, Ordering};

/// The atomics that [`counted`] uses; the model checker replaces them with its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

/// Unique in the process, and larger than the id of every earlier call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(NonZeroU64);

impl CallId {
    pub(crate) fn new() -> Self {
        let last = next();
        Self(NonZeroU64::MIN.saturating_add(last))
    }
}

#[cfg(not(tollgate_simulation))]
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Counts separately on each thread: a simulation treats a thread as a process, which must not depend on the others.
#[cfg(tollgate_simulation)]
fn next() -> u64 {
    thread_local!(static LAST: AtomicU64 = const { AtomicU64::new(0) });
    LAST.with(|last| last.fetch_add(1, Ordering::Relaxed))
}
