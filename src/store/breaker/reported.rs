//! A breaker by tokio's clock. When it opens and closes is logged and counted here, for whichever it is.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

use super::{Breaker, BreakerState, Permit, millis};
use crate::core::OutageLines;
use crate::store::OnFailure;
use crate::telemetry::Telemetry;

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
    /// A closed breaker without failures.
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

    /// Reports a reply.
    pub(crate) fn succeeded(&self, permit: Permit) {
        if self.inner.succeeded(permit, || self.now()) {
            self.telemetry.breaker_closed();
            let failed_for = Duration::from_millis(self.now().saturating_sub(self.inner.first_failure()));
            self.lines.ended(|| self.whose.is_available(failed_for));
        }
    }

    /// Reports a failure. Returns whether it is of calls that go on, as the breaker stays closed; then nothing is logged.
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
                "the store is not called for now: it failed too often (breaker open)"
            ),
            Self::Primary(primary) => tracing::warn!(
                code = "primary_unavailable",
                %primary,
                %error,
                more,
                "a primary is not called for now: it failed too often (breaker open)"
            ),
        }
    }

    fn is_available(&self, failed_for: Duration) {
        match self {
            Self::Store(_) => {
                tracing::info!(code = "store_available", ?failed_for, "the store decides again (breaker closed)");
            }
            Self::Primary(primary) => {
                tracing::info!(code = "primary_available", %primary, ?failed_for, "a primary decides again (breaker closed)");
            }
        }
    }
}
