//! Warnings that recur, as those that clients can cause, which are therefore logged once a second at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The period in which a warning was logged last, mostly a second, in Unix time.
#[derive(Debug, Default)]
pub(crate) struct Warning(AtomicU64);

impl Warning {
    /// Creates a warning that is due.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns whether the warning is due, and notes that it is logged: the caller has to log it.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due_within(1)
    }

    /// Returns whether the warning is due, as [`is_due`](Self::is_due) does, where it is logged once in so many seconds:
    /// always the same number.
    pub(crate) fn is_due_within(&self, seconds: u64) -> bool {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let period = second / seconds.max(1);
        self.0.swap(period, Ordering::Relaxed) != period
    }
}
