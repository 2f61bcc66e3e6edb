use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant as SystemInstant};

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::store::Clock;

/// A clock that stands still until a test advances it. Clones share the time.
///
/// It starts at [`EPOCH`](Self::EPOCH), where windows of whole seconds, minutes, hours and days begin, and also windows
/// of 7 and 30 days, so a test knows how much of a window is left.
///
/// # Timers
///
/// A clock from [`new`](Self::new) affects only the counters of the stores that read it. Everything that waits uses
/// tokio's timers: [`Limiter::until_ready`](crate::Limiter::until_ready), a request in the queue of a leaky bucket, a
/// timeout, the pause of a circuit breaker. The local fallback counts time by them, too. A clock from
/// [`paused`](Self::paused) advances together with tokio's timers.
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

struct Time {
    shown: Duration,
    timers: Option<Timers>,
    /// Last time set, and [`now`](Self::now) then.
    wall: (Duration, Duration),
}

struct Timers {
    runtime: Handle,
    read: Instant,
}

impl ManualClock {
    /// The time since the Unix epoch that a new clock shows: 19,740 days, which is 18 January 2024.
    pub const EPOCH: Duration = Duration::from_secs(19_740 * 86_400);

    /// A clock at [`EPOCH`](Self::EPOCH), which only the test moves.
    pub fn new() -> Self {
        Self::with_timers(None)
    }

    /// Creates a clock at [`EPOCH`](Self::EPOCH) that is tied to the time of this tokio runtime, and pauses the
    /// runtime's time.
    ///
    /// [`advance`](Self::advance) moves both. When all tasks wait, tokio advances its time to the next timer, and the
    /// clock advances with it. The clock shows the time of this runtime on every thread.
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
        // Tokio pauses time without timers, too. Only a timer panics, which says how to enable them.
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
    /// A clock by [`paused`](Self::paused) moves tokio's time as well. Timers that have become due fire when the test
    /// next waits for anything, for example for [`tokio::task::yield_now`].
    ///
    /// # Panics
    ///
    /// If the time is too large to be represented, or if the clock is a [paused](Self::paused) one whose runtime was
    /// resumed.
    #[track_caller]
    pub fn advance(&self, by: Duration) {
        self.time().advance(by);
    }

    /// Sets the time since the Unix epoch, like the time that [`now`](Self::now) returns.
    ///
    /// It may be earlier than now, like when an operator corrects the time of a machine. Tokio's time never steps back:
    /// an earlier time sets only this clock.
    ///
    /// # Panics
    ///
    /// Like [`advance`](Self::advance).
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

    /// Sets only the wall clock, by which aligned windows begin and end, like when a machine's time is corrected, or
    /// after it slept.
    ///
    /// [`now`](Self::now), by which rates are counted, stays. Afterwards the two advance together.
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

    /// A clone that panicked has not left the time half set.
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
    /// Enters the runtime, because other threads have their own time.
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

/// Compares with the system's time, because tokio has no getter, and panics if it is paused twice.
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
