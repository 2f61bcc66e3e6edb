//! How much is allowed: an algorithm, a limit, a window.

mod bounds;
mod build;
mod message;

use std::fmt;
use std::time::Duration;

use crate::core::algorithm::{
    Adjusted, Adjustment, Algorithm, CounterState, DenialScope, Facts, Layout, QuotaParams, Step,
};
use crate::core::calendar::Calendar;

/// How much one key may take: an algorithm, a limit in units, and the window that the limit applies to.
///
/// Constructors are `const` and panic on values that can never work, so a wrong constant does not compile; each has a
/// `try_` variant that returns an error, for values from a file or a user.
///
/// # Which algorithm
///
/// For "n in t", take [`token_bucket(n, t)`](Self::token_bucket), which [`per_second`](Self::per_second) to
/// [`per_day`](Self::per_day) are, too. It refills evenly, so a client that was refused waits for one unit only. A full
/// bucket and what is refilled meanwhile let up to twice the limit through in one window: `per_minute(60)` admits 60
/// requests at once and one more each second, almost 120 in the first minute. A smaller [`burst`](Self::burst) lowers
/// that. Where n must hold in each window of length t, take a [`sliding_log`](Self::sliding_log), or for large limits a
/// [`sliding_window`](Self::sliding_window), which holds it nearly. A [`fixed_window`](Self::fixed_window) is for limits
/// that start anew on the minute or the hour, and admits up to twice the limit around that time. A
/// [`leaky_bucket`](Self::leaky_bucket) spaces requests evenly, and a [`concurrency`](Self::concurrency) counts requests
/// in progress.
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
/// If a limit is too large, the error names the largest one for that window.
///
/// # Serialization
///
/// With the feature `serde` it is data for logs. It is not read from there: quotas in files are those of the
/// crate tollgate-config.
///
/// ```json
/// {"algorithm":"token_bucket","limit":5000,"window_seconds":3600.0,"capacity":200,"calendar":null}
/// ```
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
    /// requests than one start at once. They share these bytes.
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
        let shape = |quota: &Self| (quota.shape_ticks(), quota.tick, quota.algorithm, quota.calendar);
        shape(self) == shape(other)
    }

    /// The longest that one request holds its slots, of a [`concurrency`](Self::concurrency).
    pub const fn longest_hold(&self) -> Option<Duration> {
        if self.facts().held { Some(self.hold()) } else { None }
    }

    pub(crate) const fn hold(&self) -> Duration {
        Duration::from_secs(self.extra as u64)
    }

    pub(crate) const fn window_ticks(&self) -> u64 {
        self.window
    }

    /// Returns the window in ticks as it is part of the identity of a counter: a ban may change, and keeps its strikes.
    pub(crate) const fn shape_ticks(&self) -> u64 {
        if self.is_ban() { 0 } else { self.window }
    }

    pub(crate) const fn is_ban(&self) -> bool {
        matches!(self.facts().layout, Layout::Ban)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.facts().held {
            return write!(f, "{} at once ({})", self.limit, self.algorithm);
        }
        if let Some(calendar) = self.calendar {
            return write!(f, "{} per {calendar} ({})", self.limit, self.algorithm);
        }
        write!(f, "{} per {:?} ({})", self.limit, self.window(), self.algorithm)
    }
}

/// The unit of time of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tick {
    /// A microsecond, for windows up to 60 s.
    Micro,
    /// A millisecond, for longer windows.
    Milli,
}

impl Tick {
    /// Returns the length of a tick in microseconds.
    pub(crate) const fn micros(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
        }
    }

    /// Returns the whole ticks of a time in microseconds.
    pub(crate) const fn of(self, micros: u64) -> u64 {
        match self {
            Tick::Micro => micros,
            Tick::Milli => micros / 1_000,
        }
    }
}

impl Quota {
    /// Decides one check on the stored state, without changing it. `now` is in ticks of the quota.
    #[inline]
    pub(crate) fn decide(&self, state: Option<&CounterState>, now: u64, cost: u64, floor: u64) -> Step {
        self.algorithm.decide(self.rule(now), state, now, cost, floor)
    }

    /// Refunds or charges units after the fact.
    #[inline]
    pub(crate) fn adjust(&self, state: Option<&CounterState>, now: u64, change: Adjustment) -> Adjusted {
        self.algorithm.adjust(self.rule(now), state, now, change)
    }

    pub(crate) fn can_read(&self, state: &CounterState) -> bool {
        self.facts().layout.is_of(state, self.window)
    }

    #[inline]
    fn rule(&self, now: u64) -> QuotaParams {
        // Ticks of a calendar are milliseconds.
        let calendar = self.calendar.map(|calendar| calendar.window_at(now));
        let Self { window, limit, capacity, .. } = *self;
        QuotaParams { window, limit, capacity, calendar, at_once: self.starting_at_once() }
    }

    /// Returns whether the level of a bucket may reach 2^52: then it is decided in units and parts of a unit.
    #[cfg(feature = "redis")]
    pub(crate) fn is_wide(&self) -> bool {
        matches!(self.facts().layout, Layout::Falling) && self.rule(0).is_wide()
    }

    #[inline]
    pub(crate) const fn facts(&self) -> &'static Facts {
        self.algorithm.facts()
    }

    #[inline]
    pub(crate) const fn is_aligned(&self) -> bool {
        self.facts().windows > 0
    }

    /// Returns whether a check of this cost and floor is decided by its floor alone: its request starts at the first
    /// free slot, however many it takes.
    pub(crate) fn decides_by_floor(&self, cost: u64, floor: u64) -> bool {
        self.facts().refusal == DenialScope::LargerFloors && cost.saturating_add(floor) <= self.capacity
    }

    /// Returns the length of the window in which a step was decided, in ticks: of a calendar, that of the very window.
    #[inline]
    pub(crate) fn window_of(&self, step: &Step) -> u64 {
        // The stamp is the end of a calendar's window.
        self.calendar.map_or(self.window, |calendar| calendar.length_until(step.stamp))
    }

    /// Returns the time until the aligned window ends in which units taken now count, of a counter that resets after
    /// `reset`; `None` if windows are not aligned.
    pub(crate) fn window_end(&self, reset: Duration) -> Option<Duration> {
        match self.facts().windows {
            0 => None,
            1 => Some(reset),
            windows => {
                let later = self.window() * (windows - 1);
                Some(if reset > later { reset.saturating_sub(later) } else { reset })
            }
        }
    }
}
