//! A clock that a test sets, and that tokio's paused time may drive.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant as SystemInstant};

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::store::Clock;

/// A clock that stands still until a test moves it. Clones share the time.
///
/// It starts at [`EPOCH`](Self::EPOCH), where windows of whole seconds, minutes, hours and days begin, and those of 7 and
/// of 30 days, so a test knows how much of a window is left.
///
/// # Timers
///
/// A clock by [`new`](Self::new) moves the counters of the stores that read it, and nothing else. Whatever waits, such as
/// [`Limiter::until_ready`](crate::Limiter::until_ready), a request in the queue of a leaky bucket, a timeout or the pause
/// of a circuit breaker, waits by tokio's timers; so does the local fallback count time by them. A clock by
/// [`paused`](Self::paused) moves together with these.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::test_util::ManualClock;
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().clock(clock.clone()).build();
/// let limiter = Limiter::new(store, [Rule::new("mail", Quota::per_minute(1))]);
///
/// let ada = Key::new("user", "ada");
/// assert!(limiter.check(&ada).await?.is_allowed());
/// assert!(!limiter.check(&ada).await?.is_allowed());
///
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check(&ada).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ManualClock {
    time: Arc<Mutex<Time>>,
}

/// The time of a clock.
struct Time {
    /// Since the Unix epoch: now, or when the timers were read.
    shown: Duration,
    /// The timers that the clock follows.
    timers: Option<Timers>,
    /// What the wall clock was last set to, and [`now`](Self::now) then.
    wall: (Duration, Duration),
}

/// The paused time of a runtime.
struct Timers {
    runtime: Handle,
    /// The runtime's time that belongs to [`Time::shown`].
    read: Instant,
}

impl ManualClock {
    /// The time since the Unix epoch that a new clock shows: 19,740 days, which is 18 January 2024.
    pub const EPOCH: Duration = Duration::from_secs(19_740 * 86_400);

    /// A clock at [`EPOCH`](Self::EPOCH), which only the test moves.
    pub fn new() -> Self {
        Self::with_timers(None)
    }

    /// A clock at [`EPOCH`](Self::EPOCH) that is one with the time of this tokio runtime, which is paused from now on
    /// unless it is already.
    ///
    /// [`advance`](Self::advance) moves both. When all tasks wait, tokio moves its time to the next timer by itself, and
    /// the clock moves with it. It shows the time of this runtime on every thread.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and in one that is not of the flavour `current_thread` or has no timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::test_util::ManualClock;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let clock = ManualClock::paused();
    /// let store = MemoryStore::builder().clock(clock.clone()).build();
    /// let limiter = Limiter::new(store, [Rule::new("mail", Quota::per_hour(1))]);
    ///
    /// let ada = Key::new("user", "ada");
    /// let most = Duration::from_secs(3_601);
    /// let (_decision, _slots) = limiter.until_ready(&ada, most).await?;
    /// // It waits for an hour, in no time.
    /// let (_decision, _slots) = limiter.until_ready(&ada, most).await?;
    /// assert!(clock.now() >= ManualClock::EPOCH + Duration::from_secs(3_600));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn paused() -> Self {
        let runtime = Handle::current();
        // Tokio pauses time without timers, too; only a timer panics, which says how to enable them.
        drop(sleep(Duration::ZERO));
        if !is_paused() {
            tokio::time::pause();
        }
        Self::with_timers(Some(Timers { runtime, read: Instant::now() }))
    }

    fn with_timers(timers: Option<Timers>) -> Self {
        Self { time: Arc::new(Mutex::new(Time { shown: Self::EPOCH, timers, wall: (Self::EPOCH, Self::EPOCH) })) }
    }

    /// Returns the time since the Unix epoch.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.time().now()
    }

    /// Moves the clock forward.
    ///
    /// A clock by [`paused`](Self::paused) moves tokio's time as well. Timers that have become due fire when the test next
    /// waits for anything, for example for [`tokio::task::yield_now`].
    ///
    /// # Panics
    ///
    /// If the time is too large to be represented, or if the clock is a [paused](Self::paused) one whose runtime was
    /// resumed.
    #[track_caller]
    pub fn advance(&self, by: Duration) {
        self.time().advance(by);
    }

    /// Sets the time since the Unix epoch, in the measure of [`now`](Self::now).
    ///
    /// It may be earlier than now, as when an operator corrects the time of a machine. Tokio's time never steps back: an
    /// earlier time sets only this clock.
    ///
    /// # Panics
    ///
    /// As [`advance`](Self::advance).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::test_util::ManualClock;
    ///
    /// // A second before the next day.
    /// let clock = ManualClock::new();
    /// clock.set(ManualClock::EPOCH + Duration::from_secs(86_399));
    /// assert_eq!(clock.now(), ManualClock::EPOCH + Duration::from_secs(86_399));
    /// ```
    #[track_caller]
    pub fn set(&self, since_epoch: Duration) {
        let mut time = self.time();
        match since_epoch.checked_sub(time.now()) {
            Some(ahead) => time.advance(ahead),
            None => time.step_back(since_epoch),
        }
    }

    /// Sets the wall clock alone, by which windows that are aligned to it begin and end: as when a machine's time is
    /// corrected, or after it slept.
    ///
    /// [`now`](Self::now) stays, by which rates are counted. Later the two move together.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::test_util::ManualClock;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::builder().clock(clock.clone()).build();
    /// let hour = Duration::from_secs(3_600);
    /// let limiter = Limiter::new(store, [Rule::new("mail", Quota::fixed_window(1, hour))]);
    ///
    /// let ada = Key::new("user", "ada");
    /// assert!(limiter.check(&ada).await?.is_allowed());
    /// clock.set_wall(ManualClock::EPOCH + hour);
    /// assert!(limiter.check(&ada).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_wall(&self, since_epoch: Duration) {
        let mut time = self.time();
        time.wall = (since_epoch, time.now());
    }

    /// Returns the time of all clones; one that panicked has not left it half set.
    fn time(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Time {
    fn now(&self) -> Duration {
        self.timers.as_ref().map_or(self.shown, |timers| self.shown + timers.elapsed())
    }

    fn wall(&self) -> Duration {
        let (set, then) = self.wall;
        (set + self.now()).saturating_sub(then)
    }

    fn advance(&mut self, by: Duration) {
        match &self.timers {
            Some(timers) => timers.advance(by),
            None => self.shown += by,
        }
    }

    fn step_back(&mut self, to: Duration) {
        self.shown = to;
        if let Some(timers) = &mut self.timers {
            timers.read += timers.elapsed();
        }
    }
}

impl Timers {
    /// Returns the time since they were read. It enters the runtime, as other threads have a time of their own.
    fn elapsed(&self) -> Duration {
        let _entered = self.runtime.enter();
        self.read.elapsed()
    }

    fn advance(&self, by: Duration) {
        let _entered = self.runtime.enter();
        // The first poll moves the time, and all others only let tasks run, for which the test has to wait anyway.
        let moved = pin!(tokio::time::advance(by));
        let _ = moved.poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// Returns whether the time of this runtime stands still while the system's moves. Tokio does not return it otherwise,
/// and panics if it pauses twice.
fn is_paused() -> bool {
    let (before, start) = (Instant::now(), SystemInstant::now());
    while start.elapsed().is_zero() {
        std::hint::spin_loop();
    }
    Instant::now() == before
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.now()
    }

    fn wall(&self) -> Duration {
        self.time().wall()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("now", &self.now()).finish_non_exhaustive()
    }
}
