//! The algorithms: what is true of each, and its arithmetic.
//!
//! An algorithm is one file here: its [facts](Facts), and pure functions of state, time and cost. The file has a
//! twin in `lua/` with the same variables and the same order of statements. All times are ticks of the quota, all
//! values stay below 2^52, and no function here reads a clock.

#[macro_use]
mod table;

mod facts;
mod fixed_window;
mod leaky_bucket;
mod names;
mod rule;
mod sliding_log;
mod sliding_window;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod token_bucket;

#[cfg(feature = "redis")]
pub(crate) use facts::Layout;
pub(crate) use facts::{Capacity, Facts, Refund, Refusal};
pub(crate) use rule::{Adjusted, Adjustment, EXACT, MOST_UNITS, Rule};
pub(crate) use state::{Found, State};
pub(crate) use step::{NEVER, Step};

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
}
