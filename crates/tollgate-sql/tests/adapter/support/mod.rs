//! What the tests share.

pub(crate) mod table;

use std::time::Duration;

use tollgate::store::{Check, Counter};
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Quota};

pub(crate) fn counter(key: &str, quota: Quota) -> Counter {
    Counter::new("policy".try_into().expect("a valid name"), Key::new("key", key), quota)
}

pub(crate) fn check(key: &str, quota: Quota, cost: u64) -> Check {
    Check::new(counter(key, quota), cost)
}

/// The time so many microseconds after a clock's first.
pub(crate) fn at(micros: u64) -> Duration {
    ManualClock::EPOCH + Duration::from_micros(micros)
}

/// A store in memory that reads the clock.
pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock.clone()).build()
}
