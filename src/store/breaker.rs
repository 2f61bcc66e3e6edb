//! Stops asking a store that fails, and finds out when it is back.
//!
//! Pure: it is told the time, in milliseconds since a start of the caller's choice, and what became
//! of each question. Its state is one word that changes as a whole, so nobody ever waits for it.

#[cfg(test)]
mod models;
mod recent;
mod shared;
mod snapshot;
#[cfg(test)]
mod tests;

/// What [`shared`] changes states with; a model checker has another one.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

pub(crate) use shared::{Breaker, Permit};
pub(super) use shared::{LONGEST_PROBE, millis};
pub use snapshot::BreakerState;
pub(super) use snapshot::FIRST_WAIT_MS;
