//! What is decided without the store, and whether it is asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::fallback;
use super::rule::{FailureRules, OnFailure};
use super::spell::Spell;
use crate::core::Error;
use crate::core::call::{CallId, Heard};
use crate::core::decision::{Decision, Outcome, Source};
use crate::metrics::StoreHealth;
use crate::store::breaker::{Breaker, FIRST_WAIT_MS, Permit, millis};
use crate::store::{BreakerState, Check, Decided, MemoryStore, Mode, Receipt};

/// The rules, what is known of the store, and the local store.
#[derive(Debug)]
pub(super) struct Without {
    rules: FailureRules,
    breaker: Breaker,
    heard: Heard,
    pub(super) local: MemoryStore,
    start: Instant,
    /// The first failure, and one more, of the last outage in which all was no longer admitted.
    allowed_up_to: AtomicU64,
    /// Failures of servers that answer.
    spell: Spell,
    health: StoreHealth,
}

impl Without {
    pub(super) fn new(rules: FailureRules) -> Self {
        let (breaker, local) = (Breaker::new(), MemoryStore::new());
        let (allowed_up_to, spell, health) = (AtomicU64::new(0), Spell::default(), StoreHealth::default());
        Self { rules, breaker, heard: Heard::new(), local, start: Instant::now(), allowed_up_to, spell, health }
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }

    pub(super) fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// How long until what an error speaks of is asked again.
    pub(super) fn next_probe(&self, error: &Error) -> Duration {
        error.outage().map_or_else(|| self.breaker.next_probe(self.now()), |outage| outage.next_probe)
    }

    /// Leave to ask the store.
    pub(super) fn ask(&self) -> Option<Permit> {
        self.breaker.ask(|| self.now())
    }

    /// Tells the breaker what became of a question.
    pub(super) fn learn(&self, permit: Permit, decided: &Result<Decided, Error>) {
        match decided {
            Ok(decided) => self.answered(permit, decided),
            Err(error) => self.failed(permit, error),
        }
    }

    /// Decides instead of a store that failed.
    pub(super) fn stand_in(&self, checks: &[Check], decided: &mut Result<Decided, Error>) {
        if let Err(error) = decided
            && let Some(instead) = self.instead(checks, error)
        {
            *decided = instead;
        }
    }

    /// A question ended without an answer. The next probe is not at once: each waits for the store.
    pub(super) fn left(&self, permit: Permit) {
        self.breaker.gave_up(permit, || self.now() + FIRST_WAIT_MS);
    }

    fn answered(&self, permit: Permit, decided: &Decided) {
        if decided.decision.source() != Source::Store {
            // A memory of the store in this process says nothing of the store.
            self.breaker.gave_up(permit, || self.now());
        } else if !self.breaker.is_calm()
            && self.counts(permit, decided.receipt.call())
            && self.breaker.answered(permit, || self.now())
        {
            self.changed(None);
        }
    }

    /// Whether this is the first that is heard of a call. What a probe says counts in any case: it may
    /// share the call with requests that were sent before the breaker opened.
    fn counts(&self, permit: Permit, call: Option<CallId>) -> bool {
        permit.is_probe() || self.heard.is_first(call)
    }

    fn failed(&self, permit: Permit, error: &Error) {
        let rule = self.rules.on_failure;
        if error.is_invalid() {
            return self.breaker.gave_up(permit, || self.now());
        }
        self.health.failed(error);
        if error.is_of_a_crowd() {
            // Nothing was asked that could have failed.
            self.left(permit);
            return log(rule, error);
        }
        if let Some(outage) = error.outage() {
            // It is counted already, and says nothing of the other servers.
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
            Some(_) => tracing::debug!(error = format!("{error:#}"), "the store is still away"),
            None => log(rule, error),
        }
    }

    /// Tells operators that the store is not asked after an error, or is asked again.
    fn changed(&self, error: Option<&Error>) {
        if let Some(error) = error {
            self.health.opened();
            let (error, rule) = (format!("{error:#}"), self.rules.on_failure);
            tracing::warn!(error, ?rule, "the store is not asked for now: it failed too often");
        } else {
            self.health.closed();
            let failed_for = self.since(self.breaker.first_failure());
            tracing::info!(?failed_for, "the store decides again");
        }
    }

    /// Decides as the rules say.
    pub(super) fn decide(&self, checks: &[Check], error: Error) -> Result<Decided, Error> {
        self.instead(checks, &error).unwrap_or(Err(error))
    }

    /// What is decided instead of an error, as the rules say; `None` if it is to be told.
    fn instead(&self, checks: &[Check], error: &Error) -> Option<Result<Decided, Error>> {
        match self.rule(error) {
            OnFailure::Fallback => Some(fallback::decide(&self.local, self.rules.instances.into(), checks)),
            OnFailure::Deny if checks.iter().any(|check| check.mode == Mode::Enforce) => None,
            OnFailure::Allow | OnFailure::Deny => Some(Ok(admit(&self.local, checks))),
        }
    }

    /// The rule that holds now: to admit all is for a time only, and not for what no store decides.
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
                // Outages of several servers overlap: each is told once.
                if self.allowed_up_to.fetch_max(first + 1, Ordering::Relaxed) < first + 1 {
                    tracing::warn!(?allow_for, "the store is away for so long that a local one limits now");
                }
                OnFailure::Fallback
            }
            _ => on_failure,
        }
    }

    /// Since when what an error speaks of fails.
    fn failing_since(&self, error: &Error) -> Option<u64> {
        let Some(outage) = error.outage() else { return self.breaker.failing_since() };
        let known = outage.failing_since.map(|since| millis(since.saturating_duration_since(self.start)));
        known.or_else(|| Some(self.spell.failed(self.now(), self.rules.allow_for)))
    }

    /// How long ago a time was, of those [`now`](Self::now) tells.
    fn since(&self, time: u64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(time))
    }
}

fn admit(local: &MemoryStore, checks: &[Check]) -> Decided {
    let outcomes = checks.iter().map(|check| Outcome::allowed(check, check.counter.quota.capacity()));
    Decided { decision: Decision::new(outcomes, Source::Open), receipt: Receipt::new(local.id(), []) }
}

/// Logs a failure, but not more than one a second.
fn log(rule: OnFailure, error: &Error) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if LAST.swap(second, Ordering::Relaxed) != second {
        tracing::warn!(error = format!("{error:#}"), ?rule, "the store could not decide");
    }
}
