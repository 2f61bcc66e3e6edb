//! The circuit breaker: it keeps calls from a store that fails, and probes whether it is available
//! again.
//!
//! States and transitions:
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | closed | open | 5 failures in a row, or 10 within a second that are at least half of its calls |
//! | open | half-open | a request comes after the wait: it probes |
//! | half-open | closed | any probe succeeds |
//! | half-open | open | all probes in flight have failed or were given up |
//!
//! The first wait is 50 ms; from the beginning of one probe to that of the next it is 100, 200, 400
//! and then always 500 ms. A breaker that opens again within a second of closing goes on with the
//! longer waits.
//!
//! The time comes in, in milliseconds since a start of the caller's choice, and the outcome of each
//! call with the [`Permit`] it was made with; a permit goes out, or none. The
//! breaker has no clock, no timer and no task, so tests set the time.
//!
//! Its state is one atomic word that changes as a whole, so no caller ever waits for another one.
//! Each change of phase begins a new *round*; outcomes of calls from an earlier round are ignored.
//!
//! Layers have one for their store (`failure/`), and primaries of a Redis Cluster one each.

#[cfg(test)]
mod models;
mod shared;
mod snapshot;
#[cfg(test)]
mod tests;

/// The atomics that [`shared`] uses; the model checker replaces them with its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

pub(crate) use shared::{Breaker, Permit};
pub(super) use shared::{LONGEST_PROBE, millis};
pub use snapshot::BreakerState;
pub(super) use snapshot::FIRST_WAIT_MS;
