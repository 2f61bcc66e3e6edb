//! What every algorithm answers: one table each.
//!
//! They are run by `tests/algorithms/main.rs`, on memory and on Redis, and by the crate's own tests, on the
//! arithmetic alone.

use super::{rows, subject};

mod fixed_window;
mod leaky_bucket;
mod sliding_log;
mod sliding_window;
mod token_bucket;
