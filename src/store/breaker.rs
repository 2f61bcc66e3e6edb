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
//! tokio's clock, and logs and counts when it opens and closes. An error of one primary carries the [`Outage`] of its breaker
//! to the layer, which does not count the failure for the whole store, and knows when the primary is called again and for
//! how long it has failed.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

pub use self::shared::BreakerState;
pub(crate) use self::shared::{Breaker, Permit};
pub(super) use self::shared::{FIRST_WAIT_MS, LONGEST_PROBE, millis};
use super::OnFailure;
use crate::core::{Error, OutageLines};
use crate::telemetry::Telemetry;

#[cfg(test)]
mod models;
mod shared;
#[cfg(test)]
mod tests;

/// What threads share it by; the model checker replaces these with its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// A circuit breaker that reports its changes: each one once, however many callers there are.
#[derive(Debug)]
pub(crate) struct ReportedBreaker {
    /// The breaker itself, to which times are milliseconds since `start`.
    pub(crate) inner: Breaker,
    /// The zero of its time.
    pub(crate) start: Instant,
    whose: Whose,
    /// What its changes are counted by, and failures of the store.
    pub(crate) telemetry: Telemetry,
    lines: OutageLines,
}

/// Whose breaker it is.
#[derive(Debug)]
pub(crate) enum Whose {
    /// That of a layer's store, whose failures this rule is for.
    Store(OnFailure),
    /// That of a primary of a Redis Cluster, at this address.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a Cluster has several"))]
    Primary(String),
}

impl ReportedBreaker {
    pub(crate) fn new(whose: Whose) -> Self {
        let (telemetry, lines) = (Telemetry::default(), OutageLines::new());
        Self { inner: Breaker::new(), start: Instant::now(), whose, telemetry, lines }
    }

    /// Returns the time in milliseconds since `start`.
    pub(crate) fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// Returns the permit for a call, or `None` if it must not be made now.
    pub(crate) fn acquire(&self) -> Option<Permit> {
        self.inner.acquire(|| self.now())
    }

    /// Returns how long until the next probe may begin; zero if it is closed.
    pub(crate) fn next_probe(&self) -> Duration {
        self.inner.next_probe(self.now())
    }

    /// Returns when the failures began, if there was no reply since.
    pub(crate) fn failing_since(&self) -> Option<Instant> {
        self.inner.failing_since().map(|since| self.start + Duration::from_millis(since))
    }

    pub(crate) fn succeeded(&self, permit: Permit) {
        if self.inner.succeeded(permit, || self.now()) {
            self.telemetry.breaker_closed();
            let failed_for = Duration::from_millis(self.now().saturating_sub(self.inner.first_failure()));
            self.lines.ended(|| self.whose.is_available(failed_for));
        }
    }

    pub(crate) fn failed(&self, permit: Permit, error: &dyn Display) -> bool {
        let before = self.inner.failed(permit, self.now());
        match before {
            Some(BreakerState::Closed) => {
                self.telemetry.breaker_opened();
                self.lines.began(|more| self.whose.is_unavailable(error, more));
            }
            Some(_) => self.lines.goes_on(|more| self.whose.is_unavailable(error, more)),
            None => {}
        }
        before.is_none()
    }
}

impl Whose {
    fn is_unavailable(&self, error: &dyn Display, more: Option<u64>) {
        match self {
            Self::Store(rule) => tracing::warn!(
                code = "store_unavailable",
                error = format!("{error:#}"),
                ?rule,
                more,
                "circuit breaker opened"
            ),
            Self::Primary(primary) => tracing::warn!(
                code = "primary_unavailable",
                %primary,
                %error,
                more,
                "circuit breaker of a primary opened"
            ),
        }
    }

    fn is_available(&self, failed_for: Duration) {
        match self {
            Self::Store(_) => {
                tracing::info!(code = "store_available", ?failed_for, "circuit breaker closed");
            }
            Self::Primary(primary) => {
                tracing::info!(code = "primary_available", %primary, ?failed_for, "circuit breaker of a primary closed");
            }
        }
    }
}

/// The state of the breaker of the server that an error is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    /// How long until the server is called again; zero if its breaker is closed or a probe is due.
    pub(crate) next_probe: Duration,
    /// Since when it has not replied, by tokio's clock; `None` if it has replied since its last
    /// failure.
    pub(crate) failing_since: Option<Instant>,
}

impl Error {
    /// Returns the error as one of a single server of the store.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_one_server(self, outage: Outage) -> Self {
        self.with_detail(outage)
    }

    /// Returns the state of the server's breaker, if the store has one for each of its servers and
    /// the error is of one of them.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.detail().copied()
    }
}
