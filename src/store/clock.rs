//! Clocks of stores that keep time in this process.
//!
//! A store reads its clock once for each decision, or once for several that share a call. Redis decides by its own time
//! unless a store is built with a clock.

use std::time::{Duration, Instant, SystemTime};

use crate::core::Quota;

/// A source of time: [`now`](Self::now) for rates, and [`wall`](Self::wall) for windows aligned to it.
///
/// It is called for each decision, from any thread, and must not block. A time that steps back neither refills nor
/// rewinds a counter. State that is more than a window ahead of it is set aside, with a warning.
///
/// # Examples
///
/// Closures are clocks, so a test can set the time:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Ask, Check, Counter, Store};
/// use tollgate::{Key, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let seconds = Arc::new(AtomicU64::new(1_000));
/// let clock = Arc::clone(&seconds);
/// let store = MemoryStore::builder()
///     .clock(move || Duration::from_secs(clock.load(Ordering::Relaxed)))
///     .build();
///
/// let (policy, key) = (PolicyName::try_from("api")?, Key::new("user", "ada"));
/// let check = Check::new(Counter::new(policy, key, Quota::per_minute(1)), 1);
/// let decide = || store.decide(std::slice::from_ref(&check), Ask::default());
/// assert!(decide().wait().await?.decision.is_allowed());
/// assert!(!decide().wait().await?.decision.is_allowed());
///
/// seconds.store(1_060, Ordering::Relaxed);
/// assert!(decide().wait().await?.decision.is_allowed());
/// # Ok(())
/// # }
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since the Unix epoch, of which parts below microseconds are ignored.
    ///
    /// It should not step back, nor jump ahead.
    fn now(&self) -> Duration;

    /// Returns the time since the Unix epoch for windows aligned to the wall clock.
    ///
    /// Fixed windows, sliding windows and windows of a calendar begin and end by it. By default it is
    /// [`now`](Self::now). Unlike `now`, it may be set to any other time.
    fn wall(&self) -> Duration {
        self.now()
    }
}

impl<F: Fn() -> Duration + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Duration {
        self()
    }
}

/// [`now`](Clock::now) is monotonic from its creation, [`wall`](Clock::wall) is the system's time, which may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    start: Instant,
    wall: Duration,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), wall: since_epoch() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.wall + self.start.elapsed()
    }

    fn wall(&self) -> Duration {
        since_epoch()
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now: u64,
    /// Equal to `now` unless a window is aligned.
    wall: u64,
}

impl Times {
    /// Reads the wall clock only if windows of a quota are aligned to it.
    #[inline]
    pub(crate) fn read<'a>(clock: &dyn Clock, quotas: impl IntoIterator<Item = &'a Quota>) -> Self {
        let now = micros(clock.now());
        let is_aligned = quotas.into_iter().any(Quota::is_aligned);
        Self { now, wall: if is_aligned { micros(clock.wall()) } else { now } }
    }

    pub(crate) fn ahead(self) -> i64 {
        self.wall.cast_signed() - self.now.cast_signed()
    }

    #[inline]
    pub(crate) fn ticks(self, quota: &Quota) -> u64 {
        quota.tick().ticks_in(if quota.is_aligned() { self.wall } else { self.now })
    }
}

/// At most three quarters of the range of exact arithmetic: the clock stops in 2077.
pub(crate) fn micros(time: Duration) -> u64 {
    let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into());
    micros.min(crate::core::algorithm::EXACT / 4 * 3)
}
