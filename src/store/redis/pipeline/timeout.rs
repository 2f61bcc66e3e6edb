//! How long a reply is waited for, and the error if there is none in time.
//!
//! A decision has a budget, set for the store, and perhaps an earlier deadline, set by its caller.
//! Both are kept, as they mean different things: the end of a whole budget is a sign that the server
//! is unavailable, whereas a short deadline is not. Settlements wait longer than a budget, as
//! no caller waits for them and their refunds must not be lost.
//!
//! All times are of tokio's clock, which tests can pause. Nothing here waits; the task of a connection does.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::Error;
use crate::core::error::Kind;
use crate::store::Deadline;

/// The limit of a budget: longer than any useful one, and short enough to be added to a time.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// How long a settlement may wait to be sent.
const SETTLEMENT_WAIT: Duration = Duration::from_secs(10);

/// A budget that runs, perhaps cut short by a deadline.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct Timeout {
    /// The whole budget, at most one year. It also is how long a server may be silent.
    pub(in crate::store::redis) budget: Duration,
    /// When the budget has run out.
    pub(in crate::store::redis) ends: Instant,
    /// When the reply is not needed any more: at `ends`; earlier by a deadline; later for a
    /// settlement.
    pub(in crate::store::redis) until: Instant,
}

impl Timeout {
    /// A whole budget, from now on.
    pub(in crate::store::redis) fn new(budget: Duration) -> Self {
        Self::by(budget, Deadline::none())
    }

    /// A budget from now on, usable up to `deadline` only. A deadline in the
    /// past ends the wait at once.
    pub(in crate::store::redis) fn by(budget: Duration, deadline: Deadline) -> Self {
        let budget = budget.min(FOREVER);
        let ends = Instant::now() + budget;
        Self { budget, ends, until: deadline.instant().map_or(ends, |at| at.min(ends)) }
    }

    /// The timeout of a settlement: 10 s, or the budget if that is longer.
    pub(in crate::store::redis) fn of_settlement(budget: Duration) -> Self {
        let timeout = Self::new(budget);
        Self { until: timeout.began() + timeout.budget.max(SETTLEMENT_WAIT), ..timeout }
    }

    /// Returns when the wait began.
    pub(in crate::store::redis) fn began(self) -> Instant {
        self.ends.checked_sub(self.budget).unwrap_or(self.ends)
    }

    /// Returns whether it ends before its budget does, in which case a timeout is no failure of the
    /// server.
    pub(in crate::store::redis) fn is_cut_short(self) -> bool {
        self.until < self.ends
    }

    /// Returns how long it lasts, for messages: a deadline is rounded up to the milliseconds that
    /// timers count in.
    fn time(self) -> Duration {
        let time = self.until.saturating_duration_since(self.began());
        if !self.is_cut_short() {
            return time;
        }
        Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// Returns the error of a caller that waited for so long.
    pub(in crate::store::redis) fn error(self) -> Error {
        Error::new(Kind::Timeout, format!("Redis did not reply within {:?}", self.time()))
    }
}

/// The error of callers that time out now, and since when it is in use. Callers that wait through the
/// same silence share it, so that layers count one failure.
#[derive(Debug, Default)]
pub(super) struct Lateness(Option<(Instant, Error)>);

impl Lateness {
    /// Returns the error for a caller that times out now: the one in use if that is less than a
    /// quarter of a budget old, else a new one.
    pub(super) fn error(&mut self, now: Instant, timeout: Timeout) -> Error {
        let current = self.0.take().filter(|(since, _)| is_same(*since, now, timeout.budget));
        let (_, error) = self.0.insert(current.unwrap_or_else(|| (now, timeout.error())));
        error.shared()
    }
}

/// Returns whether a timeout at `then` and one at `now` are of the same silence: less than a
/// quarter of a budget apart.
pub(super) fn is_same(then: Instant, now: Instant, budget: Duration) -> bool {
    now.saturating_duration_since(then) < budget / 4
}
