//! How long failures go on of which no server knows when they began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::breaker::millis;

/// Failures that come one after the other.
///
/// A server that answers may fail some of its keys for long all the same: those of a slot that is half
/// moved, or that two servers send to and fro. Answers about other keys say nothing of that, so only
/// time ends a spell.
#[derive(Debug, Default)]
pub(super) struct Spell {
    /// When it began.
    first: AtomicU64,
    /// When the last failure was, and 1 ms; 0 if there was none.
    last: AtomicU64,
}

impl Spell {
    /// Is told of a failure; when the spell began that it is of. After so long without any, another
    /// one begins.
    pub(super) fn failed(&self, now: u64, quiet: Duration) -> u64 {
        let last = self.last.fetch_max(now + 1, Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last - 1) > millis(quiet) {
            self.first.store(now, Ordering::Relaxed);
        }
        self.first.load(Ordering::Relaxed)
    }
}
