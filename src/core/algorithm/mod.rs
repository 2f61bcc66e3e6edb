//! The algorithms: the facts about each, and its arithmetic.
//!
//! An algorithm is one file here: its [facts](Facts), and pure functions of state, time and cost. The file has a
//! twin in `lua/` with the same variables and the same order of statements. All times are ticks of the quota, no
//! result is above 2^52, and no function here reads a clock.
//!
//! A [`Rule`] (the quota in ticks and units), the stored [`State`], the time, a cost and a
//! floor come in; a [`Step`] goes out: whether it fits, what remains, how long to wait, and the state that follows.
//! Nothing is written here: a caller keeps that state if the request as a whole is admitted. A change after the fact
//! comes in as an [`Adjustment`] and goes out as [`Adjusted`].
//!
//! | algorithm | counted, as of a time | a refund releases |
//! | --- | --- | --- |
//! | fixed window | `count` of the aligned window | units of the same window |
//! | the same, of a calendar | `count` of the window of the calendar | units of the same window |
//! | sliding window | `floor(previous * (window - elapsed) / window) + count` | units of this window and the last |
//! | sliding log | units of the last `window` ticks | units that still count |
//! | token bucket | `deficit / window`, which falls by `limit` a tick | units that were not refilled since |
//! | leaky bucket | `backlog / window`, which falls by `limit` a tick | the last slots in line |
//! | concurrency | slots whose cohort is younger than 9 / 8 of a window | slots of the cohort with the stamp |
//!
//! A check with a cost fits if what is counted, the cost and the floor are together at most the capacity; of a leaky
//! bucket, `cost + floor` are, and what is counted is at most `capacity - 1 - floor`.
//!
//! A look (cost 0) always fits and reports what there is. Stores and `core/quota/` call these functions by way of
//! [`Algorithm`]; all other code in which algorithms differ reads [`Facts`].

#[macro_use]
mod table;

mod ban;
mod calendar_window;
mod concurrency;
mod facts;
mod fixed_window;
mod leaky_bucket;
mod names;
mod rule;
mod sliding_log;
mod sliding_window;
mod state;
#[cfg(test)]
mod tests;
mod token_bucket;
mod wide;

pub(crate) use concurrency::HEARTBEAT;
pub(crate) use facts::{Capacity, Facts, Layout, Refund, Refusal};
pub(crate) use rule::{Adjusted, Adjustment, MOST_UNITS, NEVER, Rule, Step, mul_div_ceil};
pub(crate) use state::{EXACT, Found, State};

algorithms! {
    /// A count that starts anew at each multiple of the window since the Unix epoch.
    FixedWindow => fixed_window,
    /// The time of every unit, so that no window of this length ever holds more than the limit.
    SlidingLog => sliding_log,
    /// The counts of two fixed windows, the older by the share the sliding window still covers.
    SlidingWindow => sliding_window,
    /// A bucket of `burst` units, refilled continuously at `limit` per window. In files `"gcra"` is the same.
    TokenBucket => token_bucket,
    /// A queue whose requests leave `window / limit` apart.
    LeakyBucket => leaky_bucket,
    /// Slots that requests hold while they are served: at most the limit at once. The window is how long a slot outlives
    /// its process.
    Concurrency => concurrency,
}
