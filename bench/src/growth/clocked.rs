//! One counter in memory, on a clock that is set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::store::{Check, Counter};
use tollgate::{Key, MemoryStore, Quota};

use super::sides::name;
use crate::memory::sides::allows;

/// When the clock starts, in microseconds since the Unix epoch: at a multiple of any window.
const START: u64 = 1_700_000_000_000_000;

pub(super) struct Clocked {
    store: MemoryStore,
    counter: Counter,
    now: Arc<AtomicU64>,
}

impl Clocked {
    pub(super) fn new(quota: Quota) -> Self {
        let now = Arc::new(AtomicU64::new(START));
        let clock = Arc::clone(&now);
        let store = MemoryStore::builder().clock(move || Duration::from_micros(clock.load(Ordering::Relaxed)));
        let counter = Counter::new(name("bench"), Key::new("ip", "10.1.2.3"), quota);
        Self { store: store.build(), counter, now }
    }

    pub(super) fn advance(&self, by: Duration) {
        self.now.fetch_add(u64::try_from(by.as_micros()).expect("a short time"), Ordering::Relaxed);
    }

    /// Takes one unit; returns whether the check was admitted.
    pub(super) fn check(&self) -> bool {
        allows(&self.store, &Check::new(self.counter.clone(), 1))
    }
}
