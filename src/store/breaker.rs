//! The circuit breaker, which keeps calls from a failing store and probes whether it is available again.
//!
//! | from | to | when |
//! | --- | --- | --- |
//! | closed | open | 5 failures in a row, or 10 within a second that are at least half of its calls |
//! | open | half-open | a request is made after the wait: it probes |
//! | half-open | closed | any probe succeeds |
//! | half-open | open | all probes in flight have failed or were given up |
//!
//! The first wait is 50 ms. From the start of one probe to the start of the next, the wait is 100, 200, 400 and then
//! always 500 ms. A breaker that opens again within a second of closing continues with the longer waits. An outage,
//! with times in milliseconds:
//!
//! | time | event | phase | probes | in flight | next probe at |
//! | --- | --- | --- | --- | --- | --- |
//! | 0 | the fifth failure in a row | open | 0 | 0 | 50 |
//! | 50 | a request probes | half-open | 1 | 1 | 150 |
//! | 80 | the probe fails | open | 1 | 0 | 150 |
//! | 150 | a request probes | half-open | 2 | 1 | 350 |
//! | 350 | another request probes; the last probe has no outcome yet | half-open | 3 | 2 | 750 |
//! | 360 | one of the two succeeds | closed | | | |
//!
//! [`acquire`](Breaker::acquire) returns a permit, without which the store is not called. The caller reports the
//! outcome of the call with the permit, once: `succeeded`, `failed` or `gave_up`. Times are milliseconds since a start
//! that the caller chooses: the breaker has no clock, no timer and no task.
//!
//! The state is behind a lock, which is not taken while the breaker is closed and no failure is in its window. Each
//! opening and each closing begins a new *round*. Outcomes of calls of an earlier round are ignored.
//!
//! Layers have a `ReportedBreaker` for their store (`failure/`), and each primary of a Redis Cluster has one. A
//! `ReportedBreaker` uses tokio's clock, and logs and counts its changes. An error of one primary carries the
//! [`Outage`] of its breaker to the layer. So the layer does not count the failure for the whole store, and knows when
//! the primary is called again and how long it has failed.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

pub use self::shared::BreakerState;
pub(crate) use self::shared::{Breaker, CallPermit};
pub(super) use self::shared::{FIRST_WAIT_MS, MAX_PROBE, millis};
use super::OnFailure;
use crate::core::{Error, OutageLines};
use crate::telemetry::Telemetry;

#[cfg(test)]
mod models;
mod shared;
#[cfg(test)]
mod tests;

// Separate from its users because the model checker replaces it.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// Reports each change once, however many callers there are.
#[derive(Debug)]
pub(crate) struct ReportedBreaker {
    /// Its times are milliseconds since `start`.
    pub(crate) inner: Breaker,
    pub(crate) start: Instant,
    whose: Whose,
    pub(crate) telemetry: Telemetry,
    lines: OutageLines,
}

#[derive(Debug)]
pub(crate) enum Whose {
    Store(OnFailure),
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a Cluster has several"))]
    Primary(String),
}

impl ReportedBreaker {
    pub(crate) fn new(whose: Whose) -> Self {
        let (telemetry, lines) = (Telemetry::default(), OutageLines::new());
        Self { inner: Breaker::new(), start: Instant::now(), whose, telemetry, lines }
    }

    pub(crate) fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    pub(crate) fn acquire(&self) -> Option<CallPermit> {
        self.inner.acquire(|| self.now())
    }

    pub(crate) fn next_probe(&self) -> Duration {
        self.inner.next_probe(self.now())
    }

    /// `None` if the store has replied since.
    pub(crate) fn failing_since(&self) -> Option<Instant> {
        self.inner.failing_since().map(|since| self.start + Duration::from_millis(since))
    }

    pub(crate) fn succeeded(&self, permit: CallPermit) {
        if self.inner.succeeded(permit, || self.now()) {
            self.telemetry.breaker_closed();
            let failed_for = Duration::from_millis(self.now().saturating_sub(self.inner.first_failure()));
            self.lines.ended(|| self.whose.is_available(failed_for));
        }
    }

    pub(crate) fn failed(&self, permit: CallPermit, error: &dyn Display) -> bool {
        let before = self.inner.failed(permit, self.now());
        match before {
            Some(BreakerState::Closed) => {
                self.telemetry.breaker_opened();
                let error = format!("{error:#}");
                self.lines.began(&error, |more| self.whose.is_unavailable(&error, "opened", more));
            }
            Some(_) => {
                let error = format!("{error:#}");
                self.lines.goes_on(&error, |more| self.whose.is_unavailable(&error, "is open", more));
            }
            None => {}
        }
        before.is_none()
    }
}

impl Whose {
    fn is_unavailable(&self, error: &str, state: &str, more: Option<u64>) {
        match self {
            Self::Store(rule) => {
                tracing::warn!(code = "store_unavailable", error, ?rule, more, "circuit breaker {state}");
            }
            Self::Primary(primary) => tracing::warn!(
                code = "primary_unavailable",
                %primary,
                error,
                more,
                "circuit breaker of a primary {state}"
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) next_probe: Duration,
    /// By tokio's clock. `None` if the server has replied since.
    pub(crate) failing_since: Option<Instant>,
}

impl Error {
    #[cfg(feature = "cluster")]
    pub(crate) fn for_one_server(self, outage: Outage) -> Self {
        self.with_detail(outage)
    }

    /// `None` unless the error is from one of several servers with breakers.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.detail().copied()
    }
}
