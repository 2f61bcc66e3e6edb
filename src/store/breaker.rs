//! The circuit breaker: it keeps calls from a store that fails, and probes whether it is available
//! again.
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
//! longer waits. An outage, with times in milliseconds:
//!
//! | time | event | phase | probes | in flight | next probe at |
//! | --- | --- | --- | --- | --- | --- |
//! | 0 | the fifth failure in a row | open | 0 | 0 | 50 |
//! | 50 | a request probes | half-open | 1 | 1 | 150 |
//! | 80 | the probe fails | open | 1 | 0 | 150 |
//! | 150 | a request probes | half-open | 2 | 1 | 350 |
//! | 350 | another one does; the last has no outcome yet | half-open | 3 | 2 | 750 |
//! | 360 | one of the two succeeds | closed | | | |
//!
//! A call goes like this: [`acquire`](Breaker::acquire) returns a permit, or none, and then the store is not called;
//! the caller calls the store; it reports the outcome with the permit, once: `succeeded`, `failed` or `gave_up`. The
//! time is a number of milliseconds since a start of the caller's choice: the breaker has no clock, no timer and no
//! task.
//!
//! Its state is behind a lock, which nobody takes while the breaker is closed and no failure is in its window. Each time
//! that it opens or closes begins a new *round*; outcomes of calls of an earlier one are ignored.
//!
//! Layers have one for their store (`failure/`), and primaries of a Redis Cluster one each: a `ReportedBreaker`, which has
//! tokio's clock, and logs and counts when it opens and closes.

#[cfg(test)]
mod models;
mod reported;
mod shared;
#[cfg(test)]
mod tests;

/// What threads share it by; the model checker replaces these with its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

pub(crate) use reported::{ReportedBreaker, Whose};
pub(crate) use shared::{Breaker, Permit};
pub(super) use shared::{FIRST_WAIT_MS, LONGEST_PROBE, millis};

/// The state of a circuit breaker: whether a store, or one of its servers, is called.
///
/// [`OnFailure`](crate::OnFailure) has what counts as a failure, and the times.
///
/// # Examples
///
/// ```
/// use tollgate::{BreakerState, MemoryStore, Policy, Quota, RateLimitLayer};
///
/// let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_minute(100)));
/// assert_eq!(layer.breaker_state(), BreakerState::Closed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store is called: it replies, or has not failed often enough.
    Closed,
    /// The store is not called: it failed a moment ago.
    Open,
    /// The store is called by a probe only; other requests do not wait for its outcome.
    HalfOpen,
}
