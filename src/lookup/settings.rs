//! How much is looked up at a time, and how long answers are remembered.

use std::time::Duration;

/// How long a failed look-up is not repeated.
pub(super) const FAILED_FOR: Duration = Duration::from_secs(1);

/// How long it is remembered that nothing was found, unless answers are remembered for less.
const NOTHING_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) capacity: u64,
    pub(super) lifetime: Duration,
    pub(super) timeout: Duration,
    pub(super) in_flight: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let (lifetime, timeout) = (Duration::from_secs(60), Duration::from_millis(50));
        Self { capacity: 10_000, lifetime, timeout, in_flight: 256 }
    }
}

impl Settings {
    /// How long it is remembered that nothing was found.
    pub(super) fn nothing_for(&self) -> Duration {
        self.lifetime.min(NOTHING_FOR)
    }
}
