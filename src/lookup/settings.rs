//! The bounds of lookups, and how long their results are cached.

use std::time::Duration;

/// How long a failed lookup is cached, so that it is not repeated.
pub(super) const FAILED_FOR: Duration = Duration::from_secs(1);

/// How long an empty result is cached, unless results are cached for less.
const NOTHING_FOR: Duration = Duration::from_secs(10);

/// The settings of one kind of lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// How many keys are cached.
    pub(super) capacity: u64,
    /// How long a result is cached.
    pub(super) lifetime: Duration,
    /// How long one lookup may take.
    pub(super) timeout: Duration,
    /// How many lookups may be in flight; at least 1.
    pub(super) in_flight: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let (lifetime, timeout) = (Duration::from_secs(60), Duration::from_millis(50));
        Self { capacity: 10_000, lifetime, timeout, in_flight: 256 }
    }
}

impl Settings {
    /// Returns how long an empty result is cached.
    pub(super) fn nothing_for(&self) -> Duration {
        self.lifetime.min(NOTHING_FOR)
    }
}
