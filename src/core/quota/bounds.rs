//! The bounds of quotas within which every decision is exact.

use std::time::Duration;

use super::advice::advice;
use super::{Quota, Tick};
use crate::core::algorithm::{Algorithm, Capacity};
use crate::core::{Calendar, Error};

/// Windows up to this long are counted in microseconds, longer ones in milliseconds.
const FINE_WINDOW: Duration = Duration::from_secs(60);

/// Some stored times are kept modulo twice this many ticks, so no state may matter for longer.
const LONGEST: u64 = 1 << 43;

/// Ticks of a day, in windows so long.
const MILLIS_A_DAY: u64 = 86_400_000;

/// The most requests that start at once.
const MOST_AT_ONCE: u64 = 1 << 32;

/// The longest that a request holds its slots, in seconds, unless another time is set.
const HOLD: u32 = 3_600;

impl Quota {
    /// The same algorithm and window with fewer units.
    pub(crate) const fn with_units(self, limit: u64, capacity: u64) -> Self {
        Self { limit, capacity, ..self }
    }

    pub(super) const fn checked(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Fault> {
        let tick = if window.as_micros() <= FINE_WINDOW.as_micros() { Tick::Micro } else { Tick::Milli };
        let tick_nanos = tick.micros() as u128 * 1_000;
        let ticks = window.as_nanos() / tick_nanos;
        if limit == 0 {
            return Err(Fault::ZeroLimit);
        }
        if window.is_zero() {
            return Err(Fault::ZeroWindow);
        }
        if !window.as_nanos().is_multiple_of(tick_nanos) {
            return Err(Fault::Fraction);
        }
        if ticks >= (LONGEST / 4) as u128 {
            return Err(Fault::LongWindow);
        }
        #[allow(clippy::cast_possible_truncation, reason = "ticks are below 2^41")]
        let (given, window) = (window, ticks as u64);
        if let Some(longest) = algorithm.facts().longest_window
            && window > longest
        {
            return Err(Fault::LongForAlgorithm { longest });
        }
        if is_shorter(given, algorithm.facts().shortest_window) {
            return Err(Fault::ShortWindow { shortest: algorithm.facts().shortest_window });
        }
        let capacity = algorithm.facts().capacity.of(limit);
        let extra = if algorithm.facts().held { HOLD } else { 0 };
        let most = algorithm.most_units(window);
        if limit > most {
            Err(Fault::LargeLimit { most })
        } else {
            Ok(Self { algorithm, limit, window, tick, capacity, extra, calendar: None })
        }
    }

    /// A quota of the longer form of an algorithm, which takes more units.
    pub(super) const fn checked_longer(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Fault> {
        let Some((_, most)) = algorithm.facts().longer else {
            return Self::checked(algorithm, limit, window);
        };
        match Self::checked(algorithm, 1, window) {
            Ok(_) if limit == 0 => Err(Fault::ZeroLimit),
            Ok(_) if limit > most => Err(Fault::LargeLimit { most }),
            Ok(quota) => Ok(quota.with_units(limit, limit)),
            Err(fault) => Err(fault),
        }
    }

    /// As [`checked_longer`](Self::checked_longer), with the error of a fault.
    pub(crate) fn try_longer(algorithm: Algorithm, limit: u64, window: Duration) -> Result<Self, Error> {
        Self::checked_longer(algorithm, limit, window).map_err(|fault| fault.given(algorithm, limit, window))
    }

    /// A quota whose windows are those of a calendar; its length is the usual one.
    pub(super) fn checked_calendar(algorithm: Algorithm, limit: u64, calendar: Calendar) -> Result<Self, Fault> {
        let quota = Self::checked(algorithm, limit, Duration::from_millis(calendar.usual_ms()))?;
        Ok(Self { calendar: Some(calendar), ..quota })
    }

    pub(super) const fn checked_queue(self, places: u64) -> Result<Self, Fault> {
        if !matches!(self.facts().capacity, Capacity::Queue) {
            return Err(Fault::NoQueue);
        }
        let most = self.most_capacity() - 1;
        if places > most {
            return Err(Fault::LargeQueue { most });
        }
        let least = self.extra as u64;
        if places < least { Err(Fault::SmallQueue { least }) } else { Ok(Self { capacity: places + 1, ..self }) }
    }

    pub(super) const fn checked_at_once(self, requests: u64) -> Result<Self, Fault> {
        if !matches!(self.facts().capacity, Capacity::Queue) {
            return Err(Fault::NoAtOnce);
        }
        if requests == 0 {
            return Err(Fault::ZeroAtOnce);
        }
        let most = if self.capacity < MOST_AT_ONCE { self.capacity } else { MOST_AT_ONCE };
        if requests > most {
            return Err(Fault::LargeAtOnce { most });
        }
        #[allow(clippy::cast_possible_truncation, reason = "it was compared")]
        let extra = (requests - 1) as u32;
        Ok(Self { extra, ..self })
    }

    pub(super) const fn checked_burst(self, burst: u64) -> Result<Self, Fault> {
        if !matches!(self.facts().capacity, Capacity::Burst) {
            return Err(Fault::NoBurst);
        }
        if burst == 0 {
            return Err(Fault::ZeroBurst);
        }
        let most = self.most_capacity();
        if burst > most { Err(Fault::LargeBurst { most }) } else { Ok(Self { capacity: burst, ..self }) }
    }

    pub(super) const fn checked_life(self, life: Duration) -> Result<Self, Fault> {
        if !self.facts().held {
            return Err(Fault::NoSlots);
        }
        match Self::checked(self.algorithm, self.limit, life) {
            Ok(quota) => Ok(Self { extra: self.extra, ..quota }),
            Err(fault) => Err(fault),
        }
    }

    pub(super) const fn checked_hold(self, longest: Duration) -> Result<Self, Fault> {
        if !self.facts().held {
            return Err(Fault::NoSlots);
        }
        let seconds = longest.as_nanos().div_ceil(1_000_000_000);
        if longest.as_secs() == 0 {
            return Err(Fault::ShortHold);
        }
        if seconds > u32::MAX as u128 {
            return Err(Fault::LongHold);
        }
        #[allow(clippy::cast_possible_truncation, reason = "it was compared")]
        let extra = seconds as u32;
        Ok(Self { extra, ..self })
    }

    /// The largest capacity that is exact and whose deepest debt is repaid within [`LONGEST`] ticks; at
    /// least the default, whose debt is repaid in two windows.
    const fn most_capacity(&self) -> u64 {
        let repaid = (LONGEST - self.window) as u128 * self.limit as u128 / (4 * self.window) as u128;
        let exact = self.algorithm.most_units(self.window);
        #[allow(clippy::cast_possible_truncation, reason = "the smaller one is below 2^52")]
        let most = if repaid < exact as u128 { repaid as u64 } else { exact };
        let default = self.facts().capacity.of(self.limit);
        if most < default { default } else { most }
    }
}

/// Why a quota is not valid.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    ZeroLimit,
    ZeroWindow,
    Fraction,
    LongWindow,
    LargeLimit { most: u64 },
    LongForAlgorithm { longest: u64 },
    ShortWindow { shortest: Duration },
    NoBurst,
    ZeroBurst,
    LargeBurst { most: u64 },
    NoQueue,
    LargeQueue { most: u64 },
    SmallQueue { least: u64 },
    NoAtOnce,
    ZeroAtOnce,
    LargeAtOnce { most: u64 },
    NoSlots,
    ShortHold,
    LongHold,
}

/// Whether one time is shorter than another.
const fn is_shorter(one: Duration, other: Duration) -> bool {
    one.as_nanos() < other.as_nanos()
}

impl Fault {
    pub(super) fn given(self, algorithm: Algorithm, limit: u64, window: Duration) -> Error {
        let name = algorithm.name();
        Error::invalid(match self {
            Fault::ZeroLimit => "limit 0 admits nothing: give at least 1".to_owned(),
            Fault::ZeroWindow => "window 0s is no period: give at least 1us".to_owned(),
            Fault::Fraction => format!(
                "window {window:?} is not a whole number of ticks: give whole microseconds up to 60s, \
                 whole milliseconds above"
            ),
            Fault::LongWindow => format!("window {window:?} is too long: give less than 69 years"),
            Fault::LongForAlgorithm { longest } => {
                let days = longest / MILLIS_A_DAY;
                format!("window {window:?} is too long for a {name}: give less than {days} days")
            }
            Fault::ShortWindow { shortest } => {
                format!("slot life {window:?} is shorter than two heartbeats: give at least {shortest:?}")
            }
            Fault::LargeLimit { most } if algorithm.facts().held => {
                format!("limit {limit} is too large for a {name}: give at most {most}")
            }
            Fault::LargeLimit { most } => format!(
                "limit {limit} is too large for a {name} over {window:?}: give at most {most}{}",
                advice(algorithm, limit, window, most)
            ),
            Fault::NoSlots => format!("slot life {window:?} is for a concurrency only: leave it out"),
            other => return other.given_extra(limit),
        })
    }

    pub(super) fn given_hold(self, longest: Duration) -> Error {
        Error::invalid(match self {
            Fault::NoSlots => format!("hold at most {longest:?} is for a concurrency only: leave it out"),
            Fault::LongHold => format!("hold at most {longest:?} is too long: give less than 136 years"),
            _ => format!("hold at most {longest:?} is too short: give at least 1s"),
        })
    }

    pub(super) fn given_extra(self, given: u64) -> Error {
        Error::invalid(match self {
            Fault::NoBurst => format!("burst {given} is for a token bucket only: leave it out"),
            Fault::LargeBurst { most } => format!("burst {given} is too large: give at most {most}"),
            Fault::NoQueue => format!("queue {given} is for a leaky bucket only: leave it out"),
            Fault::LargeQueue { most } => format!("queue {given} is too large: give at most {most}"),
            Fault::SmallQueue { least } => {
                format!("queue {given} is too short for the requests that start at once: give at least {least}")
            }
            Fault::NoAtOnce => format!("at_once {given} is for a leaky bucket only: leave it out"),
            Fault::ZeroAtOnce => "at_once 0 lets nothing start: give at least 1".to_owned(),
            Fault::LargeAtOnce { most: MOST_AT_ONCE } => format!("at_once {given} is too large: give at most 2^32"),
            Fault::LargeAtOnce { most } => {
                format!("at_once {given} is more than the queue holds: give at most {most}, or a longer queue")
            }
            _ => "burst 0 admits nothing: give at least 1".to_owned(),
        })
    }
}

/// Unwraps a quota where it can be checked at compile time.
pub(super) const fn accept(quota: Result<Quota, Fault>) -> Quota {
    match quota {
        Ok(quota) => quota,
        Err(Fault::ZeroLimit) => panic!("limit 0 admits nothing: give at least 1"),
        Err(Fault::ZeroWindow) => panic!("window 0s is no period: give at least 1us"),
        Err(Fault::Fraction) => panic!("the window is not a whole number of ticks"),
        Err(Fault::LongWindow) => panic!("the window is too long: give less than 69 years"),
        Err(Fault::LargeLimit { .. }) => panic!("the limit is too large for this window: see the bounds of Quota"),
        Err(Fault::LongForAlgorithm { .. }) => {
            panic!("the window is too long for its algorithm: see the bounds of Quota")
        }
        Err(Fault::ShortWindow { .. }) => panic!("the slot life is shorter than two heartbeats: give at least 2s"),
        Err(Fault::NoSlots) => panic!("a slot life and the longest hold are for a concurrency only"),
        Err(Fault::ShortHold) => panic!("the longest hold is too short: give at least 1s"),
        Err(Fault::LongHold) => panic!("the longest hold is too long: give less than 136 years"),
        Err(Fault::NoQueue) => panic!("a queue is for a leaky bucket only"),
        Err(Fault::LargeQueue { .. }) => panic!("the queue is too large for this limit and window"),
        Err(Fault::SmallQueue { .. }) => panic!("the queue is too short for the requests that start at once"),
        Err(Fault::NoAtOnce) => panic!("requests that start at once are for a leaky bucket only"),
        Err(Fault::ZeroAtOnce) => panic!("at_once 0 lets nothing start: give at least 1"),
        Err(Fault::LargeAtOnce { .. }) => panic!("more requests start at once than the queue holds: set it first"),
        Err(Fault::NoBurst) => panic!("a burst is for a token bucket only"),
        Err(Fault::ZeroBurst) => panic!("burst 0 admits nothing: give at least 1"),
        Err(Fault::LargeBurst { .. }) => panic!("the burst is too large for this limit and window"),
    }
}
