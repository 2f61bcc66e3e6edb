//! A clock that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::MemoryStore;

/// Where the clock stands at first: a multiple of 30 days, and so of every window that divides them.
pub(crate) const EPOCH_US: u64 = 656 * 30 * 86_400 * 1_000_000;

/// Microseconds since [`EPOCH_US`], shared by all clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn set(&self, micros: u64) {
        self.micros.store(micros, Ordering::SeqCst);
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.micros.fetch_add(u64::try_from(time.as_micros()).expect("a short time"), Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> u64 {
        self.micros.load(Ordering::SeqCst)
    }

    /// A store in memory that reads it.
    pub(crate) fn store(&self) -> MemoryStore {
        MemoryStore::builder().with_clock(self.reader()).build()
    }

    /// What a store reads.
    pub(crate) fn reader(&self) -> impl Fn() -> Duration + Send + Sync + 'static {
        let micros = Arc::clone(&self.micros);
        move || Duration::from_micros(EPOCH_US + micros.load(Ordering::SeqCst))
    }
}
