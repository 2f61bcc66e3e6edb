//! Rate limiting algorithms: the facts about each, and its arithmetic.
//!
//! An algorithm is a row of [facts](Facts) and one file here with pure functions of state, time and cost. The file has
//! a mirror in `lua/` with the same variables and the same order of statements. The two buckets share a file. All times
//! are ticks of the quota, no result is above 2^52, and no function here reads a clock.
//!
//! From a [`QuotaParams`] (the quota in ticks and units), the stored [`CounterState`], the time, a cost and a floor,
//! each algorithm computes a [`Step`]: whether the cost fits, the remaining units, the wait, and the next state, which
//! the caller keeps if the request as a whole is allowed. An [`Adjustment`] is a change after the fact. It results in
//! [`Adjusted`].
//!
//! | algorithm | counted, at a time | a refund releases |
//! | --- | --- | --- |
//! | fixed window | `count` of the aligned window | units of the same window |
//! | the same, of a calendar | `count` of the window of the calendar | units of the same window |
//! | sliding window | `floor(previous * (window - elapsed) / window) + count` | units of this window and the last |
//! | sliding log | units of the last `window` ticks | units that still count |
//! | token bucket | `deficit / window`, which falls by `limit` a tick | units that were not refilled since |
//! | leaky bucket | `backlog / window`, which falls by `limit` a tick | the last slots in the queue |
//! | concurrency | slots whose cohort is younger than 9 / 8 of a window | slots of the cohort with the stamp |
//!
//! A check with a cost fits if the counted units, the cost and the floor are together at most the capacity. In a leaky
//! bucket, `cost + floor` must be at most the capacity, and the counted units at most `capacity - 1 - floor`.
//!
//! A peek (cost 0) always fits. Stores and `core/quota/` call these functions through [`Algorithm`]. All other code in
//! which algorithms differ reads [`Facts`].

mod ban;
mod buckets;
mod concurrency;
mod facts;
mod fixed_window;
mod sliding_log;
mod sliding_window;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use facts::FACTS;
pub(crate) use facts::{Capacity, DenialScope, Facts, Layout, Refund};
pub(crate) use state::{
    Adjusted, Adjustment, CounterState, EXACT, MAX_UNITS, NEVER, QuotaParams, StateStatus, Step, mul_div_ceil,
};

use super::Error;

/// Interval at which slots are renewed. A TTL has at least two of them.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);

/// The algorithm that counts units against a [`Quota`](crate::Quota).
///
/// It is displayed as its name in files, and parsed from the name.
///
/// # Examples
///
/// ```
/// use tollgate::policy::Algorithm;
///
/// let algorithm: Algorithm = "leaky_bucket".parse()?;
/// assert_eq!(algorithm, Algorithm::LeakyBucket);
/// assert_eq!(algorithm.to_string(), "leaky_bucket");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A count that starts over at each multiple of the window since the Unix epoch.
    ///
    /// Its name in files is `"fixed_window"`.
    FixedWindow,
    /// The time of every unit, so that no window of this length ever holds more than the limit.
    ///
    /// Its name in files is `"sliding_log"`.
    SlidingLog,
    /// The count of a fixed window, plus the share of the previous count that the sliding window still covers.
    ///
    /// Its name in files is `"sliding_window"`.
    SlidingWindow,
    /// A bucket of `burst` units, refilled continuously at `limit` per window.
    ///
    /// Its name in files is `"token_bucket"`, or `"gcra"`.
    TokenBucket,
    /// A queue whose requests leave `window / limit` apart.
    ///
    /// Its name in files is `"leaky_bucket"`.
    LeakyBucket,
    /// Slots that requests hold while they are served, up to the limit. The window is the TTL of a slot whose process
    /// died.
    ///
    /// Its name in files is `"concurrency"`.
    Concurrency,
    /// Bans, which no quota of a policy has.
    #[doc(hidden)]
    Ban,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// # Errors
///
/// If no algorithm has this name in files.
impl FromStr for Algorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let name = if name == "gcra" { Self::TokenBucket.as_str() } else { name };
        let found = Self::ALL.iter().find(|algorithm| algorithm.as_str() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|algorithm| algorithm.as_str()).collect();
            Error::invalid(format!("algorithm {name:?} is unknown: use one of {}", names.join(", ")))
        })
    }
}

impl Algorithm {
    /// The algorithms of quotas.
    pub const ALL: &'static [Algorithm] = Self::WITH_BAN.split_at(Self::WITH_BAN.len() - 1).0;

    pub(crate) const WITH_BAN: &'static [Algorithm] = &[
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::Concurrency,
        Self::Ban,
    ];

    /// Returns the name in files, such as `"token_bucket"`.
    pub const fn as_str(self) -> &'static str {
        self.facts().name
    }

    #[inline]
    pub(crate) const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// The most units of a limit over this window, in ticks, for which every decision is exact.
    pub(crate) const fn most_units(self, window: u64) -> u64 {
        /// The limit, and capacity, up to which buckets are exact over any window: larger levels are kept in units.
        const ANY_WINDOW: u64 = 1_000_000_000_000;
        let most = match self {
            // A debt of twice the limit, a cost and a floor still sum to less than `EXACT`.
            Self::FixedWindow => return EXACT / 8 - 1,
            Self::SlidingLog => return 10_000,
            // A count in debt, which is at most twice the limit, is kept in six bytes.
            Self::SlidingWindow => return (1 << 47) - 1,
            Self::Concurrency => return 1_000_000,
            // Only a `Ban` makes such a quota.
            Self::Ban => return 0,
            // A level of twice the capacity is below `EXACT`.
            Self::TokenBucket => (EXACT - 1 - window) / 2 / window,
            // The same, and below half of it, because the end of a queue is a time.
            Self::LeakyBucket => (EXACT - 1) / 4 / window,
        };
        if most < ANY_WINDOW { ANY_WINDOW } else { most }
    }

    #[inline]
    pub(crate) fn decide(
        self,
        rule: QuotaParams,
        state: Option<&CounterState>,
        now: u64,
        cost: u64,
        floor: u64,
    ) -> Step {
        let (cost, floor) = (cost.min(MAX_UNITS), floor.min(MAX_UNITS));
        match self {
            Self::FixedWindow => fixed_window::decide(state, now, rule, cost, floor),
            Self::SlidingLog => sliding_log::decide(state, now, rule, cost, floor),
            Self::SlidingWindow => sliding_window::decide(state, now, rule, cost, floor),
            Self::TokenBucket => buckets::decide(state, now, rule, cost, floor, false),
            Self::LeakyBucket => buckets::decide(state, now, rule, cost, floor, true),
            Self::Concurrency => concurrency::decide(state, now, rule, cost, floor),
            Self::Ban => ban::decide(state, now, rule, cost, floor),
        }
    }

    #[inline]
    pub(crate) fn adjust(
        self,
        rule: QuotaParams,
        state: Option<&CounterState>,
        now: u64,
        change: Adjustment,
    ) -> Adjusted {
        match self {
            Self::FixedWindow => fixed_window::adjust(state, now, rule, change),
            Self::SlidingLog => sliding_log::adjust(state, now, rule, change),
            Self::SlidingWindow => sliding_window::adjust(state, now, rule, change),
            Self::TokenBucket => buckets::adjust(state, now, rule, change, false),
            Self::LeakyBucket => buckets::adjust(state, now, rule, change, true),
            Self::Concurrency => concurrency::adjust(state, now, rule, change),
            Self::Ban => ban::adjust(state, now, rule, change),
        }
    }
}
