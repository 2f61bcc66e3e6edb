//! How long an answer is waited for, and the error where there is none.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::Error;
use crate::core::error::Kind;
use crate::store::Deadline;
use crate::store::redis::connections::{Failure, failed};

/// Longer than any budget that is meant.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// Who waits for a lane of another runtime looks at the clock by itself, this much later.
pub(in crate::store::redis) const GRACE: Duration = Duration::from_millis(5);

/// How long a settlement waits for a connection.
const SETTLEMENT_WAIT: Duration = Duration::from_secs(10);

/// A budget that runs.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct Timeout {
    pub(in crate::store::redis) budget: Duration,
    /// When the budget is over.
    pub(in crate::store::redis) ends: Instant,
    /// When the answer is of no use any more: then, or earlier; or later, of a settlement.
    pub(in crate::store::redis) until: Instant,
}

impl Timeout {
    /// The whole of a budget, from now on.
    pub(in crate::store::redis) fn new(budget: Duration) -> Self {
        Self::by(budget, Deadline::none())
    }

    /// A budget of which only the part up to a deadline can be used.
    pub(in crate::store::redis) fn by(budget: Duration, deadline: Deadline) -> Self {
        let budget = budget.min(FOREVER);
        let ends = Instant::now() + budget;
        Self { budget, ends, until: deadline.instant().map_or(ends, |at| at.min(ends)) }
    }

    /// That of a settlement, which waits longer: the budget says when the server is silent.
    pub(in crate::store::redis) fn of_settlement(budget: Duration) -> Self {
        let timeout = Self::new(budget);
        Self { until: timeout.began() + timeout.budget.max(SETTLEMENT_WAIT), ..timeout }
    }

    /// When it began.
    pub(in crate::store::redis) fn began(self) -> Instant {
        self.ends.checked_sub(self.budget).unwrap_or(self.ends)
    }

    /// Whether it ends before its budget does, which says nothing of the server.
    pub(in crate::store::redis) fn is_cut_short(self) -> bool {
        self.until < self.ends
    }

    /// How long it lasts: what timers, which count milliseconds, make of it.
    fn time(self) -> Duration {
        let time = self.until.saturating_duration_since(self.began());
        if !self.is_cut_short() {
            return time;
        }
        Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// The error of those who waited for so long.
    pub(in crate::store::redis) fn error(self) -> Error {
        Error::new(Kind::Timeout, format!("Redis did not answer in {:?}", self.time()))
    }

    /// The error of a failure.
    pub(in crate::store::redis) fn error_of(self, failure: Failure) -> Error {
        match failure {
            Failure::Late => self.error(),
            Failure::NotConnected(error) => error,
            Failure::Answered(error) => failed(&error),
            Failure::Unsent => Error::new(Kind::Connection, "the connection to Redis was lost"),
        }
    }
}

/// What those receive who are late now, and since when: late at once is one failure.
#[derive(Debug, Default)]
pub(super) struct Lateness(Option<(Instant, Error)>);

impl Lateness {
    /// The error of those who are late now: who waited for the same silence tells nothing new.
    pub(super) fn error(&mut self, now: Instant, timeout: Timeout) -> Error {
        let known = self.0.take().filter(|(since, _)| is_same(*since, now, timeout.budget));
        let (_, error) = self.0.insert(known.unwrap_or_else(|| (now, timeout.error())));
        error.shared()
    }
}

/// Whether who was late then and who is late now waited for the same.
pub(super) fn is_same(then: Instant, now: Instant, budget: Duration) -> bool {
    now.saturating_duration_since(then) < budget / 4
}
