//! Stops asking a store that fails, and finds out when it is back.
//!
//! Pure: it is told the time, in milliseconds since a start of the caller's choice, and what became
//! of each question. Its state is one word that changes as a whole, so nobody ever waits for it.

#[cfg(test)]
mod models;
mod shared;
mod state;
#[cfg(test)]
mod tests;

/// What [`shared`] changes states with; a model checker has another one.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

use std::time::Duration;

pub(crate) use shared::Breaker;

/// The wait before the first probe. From the beginning of one to that of the next each is twice as
/// long, up to the longest.
pub(super) const FIRST_WAIT_MS: u64 = 50;
const LONGEST_WAIT_MS: u64 = 500;

/// A probe that takes longer has failed, whatever the budget: so the tasks that probe are few.
pub(super) const LONGEST_PROBE: Duration = Duration::from_secs(15);

/// Whether the store of a layer is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// It is: it answers, or has not failed often enough.
    Closed,
    /// It is not: it failed a moment ago.
    Open,
    /// It is not, but for a request that asks whether it is back; the others do not wait for that.
    HalfOpen,
}

/// Leave to ask the store once: it goes with what became of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    round: u64,
    probe: bool,
}

impl Permit {
    /// Whether the answer decides if the store is asked again.
    pub(crate) fn is_probe(self) -> bool {
        self.probe
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
