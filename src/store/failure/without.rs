//! Decisions without the store, and the reports to its circuit breaker.
//!
//! Each outcome of the store is reported here once:
//!
//! | outcome | breaker | log |
//! | --- | --- | --- |
//! | a decision of the store | success, if it is the first reported of its call | when it closes |
//! | a decision of another source | no outcome: another request may probe at once | |
//! | an invalid error | no outcome | |
//! | too many callers wait | no outcome: the next probe after 50 ms | once a second |
//! | a failure of one server of several | no outcome: that server's breaker has it | once a second, if not open |
//! | any other error | failure, if it is the first reported of its call | when it opens, else once a second |
//!
//! Times are milliseconds since the layer was made, of tokio's clock, which tests can pause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::rule::{FailureRules, OnFailure};
use super::streak::Streak;
use crate::core::call::{CallId, CountedCalls};
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::{Error, Lines, OutageLines};
use crate::store::breaker::{Breaker, FIRST_WAIT_MS, Permit, millis};
use crate::store::share;
use crate::store::{BreakerState, Check, Clock, Decided, MemoryStore, Mode, Receipt, SystemClock};
use crate::telemetry::Telemetry;

/// The rules, the state of the store, and the local store.
#[derive(Debug)]
pub(super) struct Without {
    /// As the layer set them.
    rules: FailureRules,
    /// Whether the store is called.
    breaker: Breaker,
    /// The calls whose outcome was reported last, so that each counts once.
    counted: CountedCalls,
    /// The counters of the fallback. Its identity is in the receipts of all decisions made here.
    pub(super) local: MemoryStore,
    /// The zero of the breaker's time.
    start: Instant,
    /// The first failure, and 1 ms more, of the last outage in which all requests were no longer
    /// admitted: each outage is logged once.
    allowed_up_to: AtomicU64,
    /// Failures of servers that respond otherwise.
    streak: Streak,
    /// What failures and changes of the breaker are reported to.
    telemetry: Telemetry,
    outages: OutageLines,
    /// Limits how often `outage_exceeds` is logged.
    exceeded: Lines,
}

impl Without {
    /// The state of a store that has not failed.
    pub(super) fn new(rules: FailureRules) -> Self {
        let (breaker, local) = (Breaker::new(), MemoryStore::builder().with_clock(LocalClock::new()).build());
        let (allowed_up_to, streak, telemetry) = (AtomicU64::new(0), Streak::default(), Telemetry::default());
        Self {
            rules,
            breaker,
            counted: CountedCalls::new(),
            local,
            start: Instant::now(),
            allowed_up_to,
            streak,
            telemetry,
            outages: OutageLines::new(),
            exceeded: Lines::ten(),
        }
    }

    /// Returns the time in milliseconds since `start`.
    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// Returns the state of the breaker.
    pub(super) fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Returns how long until the origin of an error is called again: one server of several, or the
    /// store.
    pub(super) fn next_probe(&self, error: &Error) -> Duration {
        error.outage().map_or_else(|| self.breaker.next_probe(self.now()), |outage| outage.next_probe)
    }

    /// Returns the permit to call the store, or `None` if the rules decide at once.
    pub(super) fn acquire(&self) -> Option<Permit> {
        self.breaker.acquire(|| self.now())
    }

    /// Reports the outcome of a call to the breaker, as the table above says. Once for each permit.
    pub(super) fn report(&self, permit: Permit, decided: &Result<Decided, Error>) {
        match decided {
            Ok(decided) => self.decided(permit, decided),
            Err(error) => self.failed(permit, error),
        }
    }

    /// Replaces an error by a decision of the rules. With [`OnFailure::Deny`] the error stays,
    /// unless no check is enforced.
    pub(super) fn stand_in(&self, checks: &[Check], decided: &mut Result<Decided, Error>) {
        if let Err(error) = decided
            && let Some(instead) = self.instead(checks, error)
        {
            *decided = instead;
        }
    }

    /// Reports a call without an outcome. The next probe does not begin at once, as each one waits
    /// for the store.
    pub(super) fn left(&self, permit: Permit) {
        self.breaker.gave_up(permit, || self.now() + FIRST_WAIT_MS);
    }

    /// Reports a decision. One of a source other than the store is no outcome of the store.
    fn decided(&self, permit: Permit, decided: &Decided) {
        if decided.decision.source() != Source::Store {
            // A decision from a cache in this process does not show whether the store works.
            self.breaker.gave_up(permit, || self.now());
        } else if !self.breaker.is_calm()
            && self.counts(permit, decided.receipt.call())
            && self.breaker.succeeded(permit, || self.now())
        {
            self.changed(None);
        }
    }

    /// Returns whether this is the first outcome of a call. That of a probe counts in any case: it
    /// may share the call with requests that were sent before the breaker opened.
    fn counts(&self, permit: Permit, call: Option<CallId>) -> bool {
        permit.is_probe() || self.counted.is_first(call)
    }

    /// Reports an error, and logs it unless the failure is counted elsewhere. A probe that fails is
    /// logged at debug level only.
    fn failed(&self, permit: Permit, error: &Error) {
        let rule = self.rules.on_failure;
        if error.is_invalid() {
            return self.breaker.gave_up(permit, || self.now());
        }
        self.telemetry.store_failed(error);
        if error.is_of_a_crowd() {
            // No call was made that could have failed.
            self.left(permit);
            return log(rule, error);
        }
        if let Some(outage) = error.outage() {
            // It is counted already, and does not concern the other servers.
            self.breaker.gave_up(permit, || self.now());
            if outage.next_probe.is_zero() {
                log(rule, error);
            }
            return;
        }
        if !self.counts(permit, error.call()) {
            return;
        }
        match self.breaker.failed(permit, self.now()) {
            Some(BreakerState::Closed) => self.changed(Some(error)),
            Some(_) => {
                tracing::debug!(error = format!("{error:#}"), "the store is still unavailable");
                self.outages.goes_on(|more| self.unavailable(error, more));
            }
            None => log(rule, error),
        }
    }

    /// Logs and counts that the store is not called any more, after an error, or is called again.
    fn changed(&self, error: Option<&Error>) {
        if let Some(error) = error {
            self.telemetry.breaker_opened();
            self.outages.began(|more| self.unavailable(error, more));
        } else {
            self.telemetry.breaker_closed();
            let failed_for = self.since(self.breaker.first_failure());
            self.outages.ended(|| {
                tracing::info!(code = "store_available", ?failed_for, "the store decides again (breaker closed)");
            });
        }
    }

    fn unavailable(&self, error: &Error, more: Option<u64>) {
        tracing::warn!(
            code = "store_unavailable",
            error = format!("{error:#}"),
            rule = ?self.rules.on_failure,
            more,
            "the store is not called for now: it failed too often (breaker open)"
        );
    }

    /// Decides as the rules say, without the store.
    ///
    /// # Errors
    ///
    /// `error`, with [`OnFailure::Deny`] and an enforced check.
    pub(super) fn decide(&self, checks: &[Check], error: Error) -> Result<Decided, Error> {
        self.instead(checks, &error).unwrap_or(Err(error))
    }

    /// Returns what is decided instead of an error; `None` if the error is the result.
    fn instead(&self, checks: &[Check], error: &Error) -> Option<Result<Decided, Error>> {
        match self.rule(error) {
            OnFailure::Fallback => Some(share::decide(&self.local, self.rules.instances.into(), checks)),
            OnFailure::Deny if checks.iter().any(|check| check.mode == Mode::Enforce) => None,
            OnFailure::Allow | OnFailure::Deny => Some(Ok(admit(&self.local, checks))),
        }
    }

    /// Returns the rule that holds now. All requests are admitted for a limited time only, and not
    /// for an invalid error, which no store decides: then the fallback holds. The first time that
    /// an outage exceeds the limit, it is logged.
    fn rule(&self, error: &Error) -> OnFailure {
        let FailureRules { on_failure, allow_for, .. } = self.rules;
        if on_failure != OnFailure::Allow {
            return on_failure;
        }
        if error.is_invalid() {
            return OnFailure::Fallback;
        }
        match self.failing_since(error) {
            Some(first) if self.since(first) >= allow_for => {
                // Outages of several servers overlap: each is logged once.
                if self.allowed_up_to.fetch_max(first + 1, Ordering::Relaxed) < first + 1 {
                    self.exceeded.log("", |more| {
                        tracing::warn!(
                            code = "outage_exceeds",
                            ?allow_for,
                            more,
                            "the outage of the store exceeds allow_for: a local one limits now"
                        );
                    });
                }
                OnFailure::Fallback
            }
            _ => on_failure,
        }
    }

    /// Returns when the failures to which an error belongs began: those of one server of several, or
    /// of the store.
    fn failing_since(&self, error: &Error) -> Option<u64> {
        let Some(outage) = error.outage() else { return self.breaker.failing_since() };
        let since = outage.failing_since.map(|since| millis(since.saturating_duration_since(self.start)));
        since.or_else(|| Some(self.streak.failed(self.now(), self.rules.allow_for)))
    }

    /// Returns the time from `time` until `now`.
    fn since(&self, time: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(time))
    }
}

/// The clock of the local counters: the system's, which moves with the timers where tests pause these.
struct LocalClock {
    system: SystemClock,
    /// When it was made, by the system's monotonic clock.
    start: Duration,
    /// The same, by the timers.
    timers: Instant,
}

impl LocalClock {
    fn new() -> Self {
        let system = SystemClock::new();
        Self { system, start: system.now(), timers: Instant::now() }
    }
}

impl Clock for LocalClock {
    fn now(&self) -> Duration {
        self.start + self.timers.elapsed()
    }

    fn wall(&self) -> Duration {
        (self.system.wall() + self.now()).saturating_sub(self.system.now())
    }
}

/// Admits all checks: as if nothing had been taken of any quota. Takes nothing.
fn admit(local: &MemoryStore, checks: &[Check]) -> Decided {
    let outcomes = checks.iter().map(|check| Outcome::allowed(check, check.counter.quota().capacity()));
    Decided { decision: Decision::new(outcomes, Source::Open), receipt: Receipt::new(local.id(), []) }
}

/// Logs a failure, at most once a second in the whole process.
fn log(rule: OnFailure, error: &Error) {
    static FAILED: Lines = Lines::new();
    FAILED.log("", |more| {
        tracing::warn!(code = "store_failed", error = format!("{error:#}"), ?rule, more, "the store could not decide");
    });
}
