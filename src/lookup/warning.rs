//! Warnings that clients can cause, which are therefore logged once a second at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The second in which a warning was logged last, in Unix time.
#[derive(Debug, Default)]
pub(crate) struct Warning(AtomicU64);

impl Warning {
    /// Creates a warning that is due.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns whether the warning is due, and notes that it is logged: the caller has to log it.
    pub(crate) fn is_due(&self) -> bool {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.swap(second, Ordering::Relaxed) != second
    }
}
