//! Where the memory store has its time from.

use std::time::{Duration, Instant, SystemTime};

/// A source of time.
///
/// Closures are clocks, so a test can set the time:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::MemoryStore;
///
/// let seconds = Arc::new(AtomicU64::new(1_000));
/// let clock = Arc::clone(&seconds);
/// let store = MemoryStore::builder()
///     .with_clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)))
///     .build();
/// seconds.store(1_060, Ordering::Relaxed);
/// # let _ = store;
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The time since the Unix epoch.
    fn now(&self) -> Duration;
}

impl<F: Fn() -> Duration + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Duration {
        self()
    }
}

/// Wall time when it was made, plus the monotonic time since: it never steps back.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
    wall: Duration,
}

impl SystemClock {
    /// A clock that shows the wall's time now.
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), wall }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.wall + self.start.elapsed()
    }
}

/// Microseconds since the epoch, kept within what the arithmetic holds: the clock stops in 2077.
pub(crate) fn micros(clock: &dyn Clock) -> u64 {
    let now = clock.now();
    let micros = now.as_secs().saturating_mul(1_000_000).saturating_add(now.subsec_micros().into());
    micros.min(crate::core::algorithm::EXACT / 4 * 3)
}
