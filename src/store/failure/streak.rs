//! How long failures that no server's breaker counts have lasted.
//!
//! For [`OnFailure::Allow`](super::OnFailure), which admits all requests for a limited time, an
//! outage needs a beginning. Breakers have it for servers that fail altogether; for a server that
//! replies but fails some keys it is noted here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::store::breaker::millis;

/// Failures that follow one another, without a pause as long as all requests are admitted.
///
/// A server that replies may still fail some of its keys for long: those of a slot that is half
/// moved, or that two servers redirect to each other. Replies for other keys do not end that, so
/// only time ends a streak.
#[derive(Debug, Default)]
pub(super) struct Streak {
    /// When it began, in milliseconds since the layer was made.
    first: AtomicU64,
    /// The time of the last failure plus 1 ms; 0 if there was none.
    last: AtomicU64,
}

impl Streak {
    /// Notes a failure at `now` and returns when its streak began. After more than `quiet` without
    /// failures, a new one begins.
    pub(super) fn failed(&self, now: u64, quiet: Duration) -> u64 {
        let last = self.last.fetch_max(now + 1, Ordering::Relaxed);
        if last == 0 || now.saturating_sub(last - 1) > millis(quiet) {
            self.first.store(now, Ordering::Relaxed);
        }
        self.first.load(Ordering::Relaxed)
    }
}
