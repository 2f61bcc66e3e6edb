mod bounds;
mod build;
mod message;

use std::fmt;
use std::time::Duration;

use crate::core::algorithm::{
    Adjusted, Adjustment, Algorithm, CounterState, DenialScope, Facts, Layout, QuotaParams, Step,
};
use crate::core::calendar::Calendar;

/// A limit for each key: an algorithm, a number of units, and the window in which they may be taken.
///
/// Constructors are `const` and panic on values that can never work, so a wrong constant does not compile. Each has a
/// `try_` variant that returns an error, for values from a file or a user.
///
/// # Which algorithm
///
/// For "n in t", use [`token_bucket(n, t)`](Self::token_bucket), like [`per_second`](Self::per_second) to
/// [`per_day`](Self::per_day). It refills evenly, so a denied client waits for one unit only. A full bucket and the
/// units refilled during a window allow up to twice the limit in it: `per_minute(60)` allows 60 requests at once and
/// one more each second, almost 120 in the first minute. A smaller [`burst`](Self::burst) lowers that number. Where n
/// must hold in each window of length t, use a [`sliding_log`](Self::sliding_log), or for large limits a
/// [`sliding_window`](Self::sliding_window), which is nearly exact. A [`fixed_window`](Self::fixed_window) is for
/// limits that restart on the minute or the hour, and allows up to twice the limit around that time. A
/// [`leaky_bucket`](Self::leaky_bucket) spaces requests evenly, and a [`concurrency`](Self::concurrency) counts
/// requests in flight.
///
/// # Bounds
///
/// Decisions are exact: all arithmetic is in integers. A tick is 1 µs for windows up to 60 s and 1 ms for longer ones.
/// A window is a whole number of ticks, and shorter than 69 years. A time to retry is never early, and late by less
/// than a tick, or by two if a smaller request was denied and cached. Only the time of a concurrency is a guess.
///
/// The largest limits:
///
/// | algorithm | largest limit, with the window in ticks | for a larger limit |
/// | --- | --- | --- |
/// | token bucket | 10^12, whatever the window; about 2^51 / window if that is more; the burst likewise | the same rate over a shorter window |
/// | leaky bucket | 10^12, whatever the window; about 2^50 / window if that is more; the queue likewise | the same rate over a shorter window |
/// | sliding window | below 2^47, whatever the window | a fixed window |
/// | sliding log | 10,000, because it keeps 4 bytes per unit; its window is shorter than 49 days | [`long_sliding_log`](Self::long_sliding_log), up to 1 million; then a sliding window |
/// | fixed window | below 2^49, whatever the window | none |
/// | calendar window | below 2^49, whatever the calendar | none |
/// | concurrency | 1,000,000, whatever the TTL of a slot, which is at least 2 s | none |
///
/// A burst and a queue are also at most the units that the limit replenishes within about 69 years, or 25 days if the
/// window is up to 60 s.
///
/// A bucket keeps its units used when its limit changes. A store may drop them once the limit under which units were
/// last taken or changed would have replenished them all. A lowered limit does not keep them for longer. A capacity
/// below 2^51 / window (26 million a day) counts at most twice its own number of the units that a larger capacity left.
/// A denial changes nothing, so all of them count again if the limit is raised again.
///
/// If a limit is too large, the error names the largest one for that window.
///
/// # Serialization
///
/// With the feature `serde` a quota serializes for logs. It does not deserialize: quotas in files are read by the crate
/// tollgate-config.
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
    capacity: u64,
    /// Concurrency: seconds for which one request may hold its slots. Leaky bucket: requests beyond one that start
    /// immediately.
    extra: u32,
    calendar: Option<Calendar>,
}

impl Quota {
    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units per window; for a concurrency, units at once.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window; for a concurrency, the TTL of a slot whose process died.
    ///
    /// Windows of a [`calendar`](Self::calendar) differ in length. This is their usual length, 31 days for a month.
    /// [`Outcome::window`](crate::Outcome::window) is the length of the window that counts.
    pub const fn window(&self) -> Duration {
        Duration::from_micros(self.window * self.tick.micros())
    }

    /// The calendar whose windows count, of a [`calendar_window`](Self::calendar_window).
    pub const fn calendar(&self) -> Option<Calendar> {
        self.calendar
    }

    /// The most units that can be taken at once: a bucket's burst, a queue's places and one more, otherwise the limit.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) const fn starting_at_once(&self) -> u64 {
        self.extra as u64 + 1
    }

    pub(crate) const fn tick(&self) -> Tick {
        self.tick
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tick {
    Micro,
    Milli,
}

impl Tick {
    pub(crate) const fn micros(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
        }
    }

    pub(crate) const fn ticks_in(self, micros: u64) -> u64 {
        match self {
            Tick::Micro => micros,
            Tick::Milli => micros / 1_000,
        }
    }
}

impl Quota {
    /// `now` is in ticks of the quota.
    #[inline]
    pub(crate) fn decide(&self, state: Option<&CounterState>, now: u64, cost: u64, floor: u64) -> Step {
        self.algorithm.decide(self.rule(now), state, now, cost, floor)
    }

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

    /// Returns `true` if the floor alone decides, because a request starts at the first free slot.
    pub(crate) fn decides_by_floor(&self, cost: u64, floor: u64) -> bool {
        self.facts().refusal == DenialScope::LargerFloors && cost.saturating_add(floor) <= self.capacity
    }

    /// Ticks of the window in which a step was decided; for a calendar, of this very window.
    #[inline]
    pub(crate) fn window_of(&self, step: &Step) -> u64 {
        // The stamp is the end of a calendar's window.
        self.calendar.map_or(self.window, |calendar| calendar.length_until(step.stamp))
    }

    /// Time until the end of the aligned window in which units taken now count, in a counter that resets after `reset`;
    /// `None` if windows are not aligned.
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
