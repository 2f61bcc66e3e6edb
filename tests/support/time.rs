//! Times of clocks that tests set, and a store that reads one.

use std::time::Duration;

use tollgate::MemoryStore;
use tollgate::test_util::ManualClock;

/// The time so many microseconds after a clock's first.
pub(crate) fn at(micros: u64) -> Duration {
    ManualClock::EPOCH + Duration::from_micros(micros)
}

/// A store in memory that reads the clock.
pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}
