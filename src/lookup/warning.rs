//! Warnings that clients can cause, and that therefore come at most once a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// When a warning was logged last.
#[derive(Debug, Default)]
pub(crate) struct Warning(AtomicU64);

impl Warning {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether it is due.
    pub(crate) fn is_due(&self) -> bool {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.swap(second, Ordering::Relaxed) != second
    }
}
