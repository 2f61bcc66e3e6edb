//! How much is allowed: an algorithm, a limit, a window.

mod advice;
mod bounds;
mod build;
mod decide;
mod share;
mod tick;

use std::fmt;
use std::time::Duration;

#[cfg_attr(not(feature = "config"), allow(unused_imports, reason = "it is for files"))]
pub(crate) use self::build::SLOT_LIFE;
pub(crate) use self::tick::Tick;
use crate::core::algorithm::Algorithm;
use crate::core::calendar::Calendar;

/// How much one key may take: an algorithm, a limit in units, and the window that the limit applies to.
///
/// Constructors are `const` and panic on values that can never work, so a wrong constant does not compile; each has a
/// `try_` variant that returns an error, for values from a file or a user.
///
/// # Bounds
///
/// Decisions are exact: all arithmetic is in integers. A tick is 1 µs for windows up to 60 s and 1 ms for longer ones.
/// A window is a whole number of ticks, and shorter than 69 years. A time to retry is never early, and late by less
/// than a tick, or two if it is that of a cached refusal of a smaller request; only that of a concurrency is a guess.
///
/// The largest limits:
///
/// | algorithm | largest limit, with the window in ticks | for a larger limit |
/// | --- | --- | --- |
/// | token bucket | 10^12, whatever the window; about 2^51 / window if that is more; the burst likewise | the same rate over a shorter window |
/// | leaky bucket | 10^12, whatever the window; about 2^50 / window if that is more; the queue likewise | the same rate over a shorter window |
/// | sliding window | below 2^47, whatever the window | a fixed window |
/// | sliding log | 10,000, as it keeps 4 bytes per unit; its window is shorter than 49 days | [`long_sliding_log`](Self::long_sliding_log), up to 1 million; then a sliding window |
/// | fixed window | below 2^49, whatever the window | none |
/// | calendar window | below 2^49, whatever the calendar | none |
/// | concurrency | 1,000,000, whatever the life of a slot, which is at least 2 s | none |
///
/// A burst and a queue are also at most what the limit brings back within about 69 years, or 25 days if the window is
/// up to 60 s.
///
/// A bucket keeps its units used when its limit changes. A store may forget them once the limit under which units were
/// last taken or changed would have returned all of them: a lowered limit does not keep them for longer. A capacity
/// below 2^51 / window (26 million a day) counts no more than twice that many of the units that a larger one left. A
/// refusal changes nothing, so a limit that is raised again finds all of them.
///
/// If a limit is too large, the error names the largest one for that window, and an alternative that supports it, if
/// there is one.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// const API: Quota = Quota::token_bucket(5_000, Duration::from_secs(3600)).burst(200);
/// assert_eq!(API.limit(), 5_000);
/// assert_eq!(API.capacity(), 200);
/// assert!(Quota::try_per_second(0).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Quota {
    algorithm: Algorithm,
    limit: u64,
    /// In ticks.
    window: u64,
    tick: Tick,
    /// The most units that can be taken at once.
    capacity: u64,
    /// Of a concurrency, the longest that one request holds its slots, in seconds; of a leaky bucket, how many more
    /// requests than one start at once. Quotas are copied into every outcome, so they share these bytes.
    extra: u32,
    /// What the windows are, if they are not aligned ones of this length.
    calendar: Option<Calendar>,
}

impl Quota {
    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per window; of a concurrency, units at once.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window; of a concurrency, how long a slot outlives its process.
    ///
    /// Windows of a [`calendar`](Self::calendar) differ in length, and this is their usual one: 31 days of a month. See
    /// [`Outcome::window`](crate::Outcome::window) for the one that counts.
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window * self.tick.micros())
    }

    /// The calendar whose windows count, of a [`calendar_window`](Self::calendar_window).
    pub const fn calendar(&self) -> Option<Calendar> {
        self.calendar
    }

    /// The most units that can be taken at once: a bucket's burst, a queue's places and one more,
    /// else the limit.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Requests of a leaky bucket that start at once after a pause; those after them wait for their turn.
    pub(crate) const fn starting_at_once(&self) -> u64 {
        self.extra as u64 + 1
    }

    pub(crate) const fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns whether a counter keeps its state when one quota replaces the other: algorithm and window are the same.
    pub(crate) fn shares_shape(&self, other: &Self) -> bool {
        let shape = |quota: &Self| (quota.window, quota.tick, quota.algorithm, quota.calendar);
        shape(self) == shape(other)
    }

    /// Returns the longest that one request holds its slots.
    pub(crate) const fn hold(&self) -> Duration {
        Duration::from_secs(self.extra as u64)
    }

    pub(crate) const fn window_ticks(&self) -> u64 {
        self.window
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.facts().held {
            return write!(f, "{} at once ({})", self.limit, self.algorithm.name());
        }
        if let Some(calendar) = self.calendar {
            return write!(f, "{} per {calendar} ({})", self.limit, self.algorithm.name());
        }
        write!(f, "{} per {:?} ({})", self.limit, self.window(), self.algorithm.name())
    }
}
