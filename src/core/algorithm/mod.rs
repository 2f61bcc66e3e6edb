//! The arithmetic of the algorithms: pure functions of state, time and cost.
//!
//! Each file has a twin in `lua/` with the same variables and the same order of statements. All
//! times are ticks of the quota, all values stay below 2^52, and no function here reads a clock.

mod fixed_window;
mod leaky_bucket;
mod rule;
mod sliding_log;
mod sliding_window;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod token_bucket;

#[cfg(feature = "redis")]
pub(crate) use rule::MOST_UNITS;
pub(crate) use rule::{Adjusted, Adjustment, adjust, decide};
pub(crate) use state::{Found, State};
pub(crate) use step::{NEVER, Step};
