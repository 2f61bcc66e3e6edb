//! Decisions while the store is unavailable, and reports to its circuit breaker.
//!
//! Each outcome of the store is reported here once:
//!
//! | outcome | breaker | log |
//! | --- | --- | --- |
//! | a decision of the store | success, if it is the first reported of its call | when it closes |
//! | a decision of another source | no outcome: another request may probe at once | |
//! | an invalid error | no outcome | once a second |
//! | too many callers wait | no outcome: the next probe after 50 ms | once a second |
//! | a failure of one server of several | no outcome: that server's breaker has it | once a second, if not open |
//! | any other error | failure, if it is the first reported of its call | by the breaker if open, else once a second |
//!
//! Times are of tokio's clock, which tests can pause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::rule::{FailureRules, OnFailure};
use crate::core::call::{CallId, CountedCalls};
use crate::core::decision::{Decision, Outcome, Source};
use crate::core::{Error, Lines};
use crate::store::breaker::{CallPermit, FIRST_WAIT_MS, ReportedBreaker, Whose, millis};
use crate::store::{Check, Clock, MemoryStore, Mode, Receipt, StoreDecision, SystemClock};

#[derive(Debug)]
pub(super) struct Without {
    rules: FailureRules,
    pub(super) breaker: ReportedBreaker,
    counted: CountedCalls,
    /// Counters of the fallback. All receipts of decisions made here contain the identity of the fallback.
    pub(super) local: MemoryStore,
    /// Start of the last outage that exceeded `allow_for`, plus 1, in milliseconds of the breaker.
    allowed_up_to: AtomicU64,
    /// First and last failure of servers that still reply, at most `allow_for` apart.
    streak: Mutex<Option<(Instant, Instant)>>,
    exceeded: Lines,
}

impl Without {
    pub(super) fn new(rules: FailureRules) -> Self {
        Self {
            rules,
            breaker: ReportedBreaker::new(Whose::Store(rules.on_failure)),
            counted: CountedCalls::new(),
            local: MemoryStore::builder().clock(LocalClock::new()).build(),
            allowed_up_to: AtomicU64::new(0),
            streak: Mutex::new(None),
            exceeded: Lines::ten(),
        }
    }

    pub(super) fn next_probe(&self, error: &Error) -> Duration {
        error.outage().map_or_else(|| self.breaker.next_probe(), |outage| outage.next_probe)
    }

    pub(super) fn report(&self, permit: CallPermit, decided: &Result<StoreDecision, Error>) {
        match decided {
            // A decision from a cache in this process does not prove that the store works.
            Ok(decided) if decided.decision.source() != Source::Store => self.gave_up(permit, 0),
            Ok(decided) => {
                if !self.breaker.inner.is_calm() && self.counts(permit, decided.receipt.call()) {
                    self.breaker.succeeded(permit);
                }
            }
            Err(error) => self.failed(permit, error),
        }
    }

    pub(super) fn gave_up(&self, permit: CallPermit, pause_ms: u64) {
        self.breaker.inner.gave_up(permit, || self.breaker.now() + pause_ms);
    }

    /// A probe always counts, because it may share its call with requests sent before the breaker opened.
    fn counts(&self, permit: CallPermit, call: Option<CallId>) -> bool {
        permit.is_probe() || self.counted.is_first(call)
    }

    fn failed(&self, permit: CallPermit, error: &Error) {
        if !error.is_invalid() {
            self.breaker.telemetry.store_failed(error);
        }
        let is_logged = if error.is_invalid() {
            // The store works, but never decides such a request.
            self.gave_up(permit, 0);
            true
        } else if error.is_of_a_crowd() {
            // No call was made, so no call failed. A probe at this moment would wait, too.
            self.gave_up(permit, FIRST_WAIT_MS);
            true
        } else if let Some(outage) = error.outage() {
            // The breaker of that server counts the failure, and the other servers are not affected.
            self.gave_up(permit, 0);
            outage.next_probe.is_zero()
        } else {
            self.counts(permit, error.call()) && self.breaker.failed(permit, error)
        };
        if is_logged {
            // At most once a second in the whole process.
            static FAILED: Lines = Lines::new();
            FAILED.log("", |more| {
                let (error, rule) = (format!("{error:#}"), self.rules.on_failure);
                tracing::warn!(code = "store_failed", error, ?rule, more, "store could not decide");
            });
        }
    }

    /// With [`OnFailure::Deny`] the error stays, unless no check is enforced.
    pub(super) fn stand_in(&self, checks: &[Check], decided: &mut Result<StoreDecision, Error>) {
        let Err(error) = decided else { return };
        *decided = match self.rule(error) {
            OnFailure::Fallback => self.local.decide_share(checks, self.rules.instances.into()),
            OnFailure::Deny if checks.iter().any(|check| check.mode == Mode::Enforce) => return,
            // As if nothing had been taken of any quota.
            OnFailure::Allow | OnFailure::Deny => {
                let outcomes = checks.iter().map(|check| Outcome::allowed(check, check.counter.quota().capacity()));
                Ok(StoreDecision::new(Decision::new(outcomes, Source::FailOpen), Receipt::empty(self.local.id())))
            }
        };
    }

    /// `Allow` holds for a limited time, and never for an invalid error, which no store decides.
    fn rule(&self, error: &Error) -> OnFailure {
        let FailureRules { on_failure, allow_for, .. } = self.rules;
        if on_failure != OnFailure::Allow {
            return on_failure;
        }
        if error.is_invalid() {
            return OnFailure::Fallback;
        }
        match self.failing_since(error) {
            Some(first) if first.elapsed() >= allow_for => {
                // Outages of several servers overlap: each is logged once.
                let first = millis(first.saturating_duration_since(self.breaker.start)) + 1;
                if self.allowed_up_to.fetch_max(first, Ordering::Relaxed) < first {
                    self.exceeded.log("", |more| {
                        tracing::warn!(
                            code = "outage_exceeds",
                            ?allow_for,
                            more,
                            "outage exceeds allow_for, using fallback"
                        );
                    });
                }
                OnFailure::Fallback
            }
            _ => on_failure,
        }
    }

    /// Returns when the failures of the store, or of the one server that returned the error, began.
    fn failing_since(&self, error: &Error) -> Option<Instant> {
        let Some(outage) = error.outage() else { return self.breaker.failing_since() };
        outage.failing_since.or_else(|| {
            // A server that replies may fail some keys for long, such as those of a slot that is half moved. Replies
            // for other keys do not end such a streak, so only a pause does.
            let (now, mut streak) = (Instant::now(), self.streak.lock().unwrap_or_else(PoisonError::into_inner));
            let goes_on = streak.filter(|(_, last)| now.saturating_duration_since(*last) <= self.rules.allow_for);
            let first = goes_on.map_or(now, |(first, _)| first);
            *streak = Some((first, now));
            Some(first)
        })
    }
}

/// The system's clock. In tests that pause timers, it moves with the timers.
struct LocalClock {
    system: SystemClock,
    start: Duration,
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
