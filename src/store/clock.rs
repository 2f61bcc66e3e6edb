//! The clock of stores that keep time in this process, and a way to set it in tests.
//!
//! A store reads its clock once for each decision, or once for several that share a call. Redis
//! decides by its own time unless a store is built with a clock.

use std::time::{Duration, Instant, SystemTime};

/// A source of time.
///
/// It is called for each decision, from any thread, and must not block. It should not step back:
/// state that is more than a window ahead of the clock is set aside, with a warning.
///
/// # Examples
///
/// Closures are clocks, so a test can set the time:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::store::{Check, Counter, Deadline};
/// use tollgate::{Key, MemoryStore, PolicyName, Quota, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let seconds = Arc::new(AtomicU64::new(1_000));
/// let clock = Arc::clone(&seconds);
/// let store = MemoryStore::builder()
///     .with_clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)))
///     .build();
///
/// let (policy, key) = (PolicyName::try_from("api")?, Key::new("user", "ada"));
/// let check = Check::new(Counter::new(policy, key, Quota::per_minute(1)), 1);
/// let decide = || store.decide(std::slice::from_ref(&check), Deadline::none());
/// assert!(decide().wait().await?.decision.is_allowed());
/// assert!(!decide().wait().await?.decision.is_allowed());
///
/// seconds.store(1_060, Ordering::Relaxed);
/// assert!(decide().wait().await?.decision.is_allowed());
/// # Ok(())
/// # }
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since the Unix epoch. Microseconds count, finer parts are cut off.
    fn now(&self) -> Duration;
}

impl<F: Fn() -> Duration + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Duration {
        self()
    }
}

/// The system's time when the clock was made, plus the monotonic time since: it never steps back,
/// and does not follow later changes of the system's time.
///
/// # Examples
///
/// ```
/// use tollgate::store::{Clock, SystemClock};
///
/// let clock = SystemClock::new();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// When the clock was made, by the monotonic clock.
    start: Instant,
    /// When it was made, since the Unix epoch: zero if the system's time is before that.
    wall: Duration,
}

impl SystemClock {
    /// A clock that shows the system's time now.
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

/// Returns the microseconds since the epoch, at most three quarters of what the arithmetic is exact
/// for: the clock stops in 2077.
pub(crate) fn micros(clock: &dyn Clock) -> u64 {
    let now = clock.now();
    let micros = now.as_secs().saturating_mul(1_000_000).saturating_add(now.subsec_micros().into());
    micros.min(crate::core::algorithm::EXACT / 4 * 3)
}
