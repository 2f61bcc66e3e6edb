//! The clock of `test_util` in microseconds since its start, for histories and models that count in them.

use std::time::Duration;

use tollgate::test_util::ManualClock as Clock;

/// Where the clock stands at first: a multiple of 30 days, and so of every window that divides them.
pub(crate) const EPOCH_US: u64 = Clock::EPOCH.as_secs() * 1_000_000;

/// Microseconds since [`EPOCH_US`], shared by all clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock {
    clock: Clock,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn set(&self, micros: u64) {
        self.clock.set(Duration::from_micros(EPOCH_US + micros));
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_micros()).expect("a time of this century") - EPOCH_US
    }

    /// What a store reads.
    pub(crate) fn reader(&self) -> Clock {
        self.clock.clone()
    }
}
