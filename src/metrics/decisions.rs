//! Counts and times the decisions of a layer or limiter, by what made them.
//!
//! Every request counts once: by the source and the verdict of its decision, or, if there was none, under the source
//! `none` by the reason. Only decisions are timed, from the call of the store; extracting and looking up keys is not.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Histogram};
use tokio::time::Instant;

use super::by_policy::ByPolicy;
use super::health;
use super::names::{DECISION_SECONDS, DECISIONS};
use super::refusals::{Refusals, Skips};
use super::slots;
use crate::core::observer::{ObserveDecisions, ObserveSkips, Undecided as Reason};
use crate::core::{Decision, Error, Mode, PolicyName, Source};

/// Counts the decisions of a layer. Its handles are registered at the first one, with the recorder installed by then.
pub(super) struct Decisions {
    /// The zero of the clock, which is tokio's.
    start: Instant,
    handles: OnceLock<Handles>,
    /// Of the policies that were decided by so far.
    policies: ByPolicy<Refusals>,
}

/// The handles, one for each source.
struct Handles {
    /// Decisions of the store itself.
    store: BySource,
    /// Refusals that were cached.
    deny_cache: BySource,
    /// Decisions on leased units.
    lease: BySource,
    ratio: BySource,
    /// Decisions of the local store during an outage.
    fallback: BySource,
    /// Requests that were admitted without a limit during an outage.
    open: BySource,
    undecided: Undecided,
}

/// The handles of one source of decisions; a decision is allowed or refused, and always timed.
struct BySource {
    allowed: Counter,
    refused: Counter,
    seconds: Histogram,
}

/// The handles of the source `none`: requests that needed no decision, or for which there was none.
struct Undecided {
    /// No policy applies.
    allowed: Counter,
    /// See [`Reason::Forbidden`].
    forbidden: Counter,
    /// See [`Reason::Ambiguous`].
    ambiguous: Counter,
    /// See [`Reason::Rejected`].
    rejected: Counter,
    /// See [`Reason::Unavailable`]; also decisions that failed.
    unavailable: Counter,
    /// Only of decisions that failed: the others took no time of a store.
    seconds: Histogram,
}

impl Decisions {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), handles: OnceLock::new(), policies: ByPolicy::default() }
    }

    fn handles(&self) -> &Handles {
        self.handles.get_or_init(Handles::new)
    }

    fn with_policy(&self, policy: &PolicyName, count: impl FnOnce(&Refusals)) {
        self.policies.with(policy, Refusals::default, count);
    }
}

impl ObserveDecisions for Decisions {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn decided(&self, began: Duration, decided: Result<&Decision, &Error>) {
        let handles = self.handles();
        let took = self.now().saturating_sub(began);
        let Ok(decision) = decided else {
            handles.undecided.unavailable.increment(1);
            return handles.undecided.seconds.record(took);
        };
        handles.count(took, decision);
        for outcome in decision.outcomes() {
            self.with_policy(outcome.policy_name(), |refusals| refusals.count(outcome));
        }
    }

    fn undecided(&self, reason: Reason) {
        let undecided = &self.handles().undecided;
        let counter = match reason {
            Reason::Forbidden => &undecided.forbidden,
            Reason::Ambiguous => &undecided.ambiguous,
            Reason::Rejected => &undecided.rejected,
            Reason::Unavailable => &undecided.unavailable,
        };
        counter.increment(1);
    }

    fn ambiguous(&self, policy: &PolicyName) {
        self.with_policy(policy, |refusals| refusals.count_ambiguous(policy));
    }

    fn skips(&self, policy: &PolicyName) -> Arc<dyn ObserveSkips> {
        Arc::new(Skips::new(policy))
    }

    fn banned(&self, policy: &PolicyName, mode: Mode) {
        self.with_policy(policy, |refusals| refusals.count_ban(policy, mode));
    }
}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decisions").finish_non_exhaustive()
    }
}

impl Handles {
    /// Registers every series, also those of stores and slots, so that each is seen at 0 from the first decision on.
    fn new() -> Self {
        health::announce();
        slots::announce();
        Self {
            store: BySource::new("store"),
            deny_cache: BySource::new("deny_cache"),
            lease: BySource::new("lease"),
            ratio: BySource::new("ratio"),
            fallback: BySource::new("fallback"),
            open: BySource::new("open"),
            undecided: Undecided::new(),
        }
    }

    /// Counts a decision by its source; one over no policies has none, and is not timed.
    fn count(&self, took: Duration, decision: &Decision) {
        if decision.outcomes().is_empty() {
            return self.undecided.allowed.increment(1);
        }
        let by = match decision.source() {
            Source::Store => &self.store,
            Source::DenyCache => &self.deny_cache,
            Source::Lease => &self.lease,
            Source::Ratio => &self.ratio,
            Source::Fallback => &self.fallback,
            Source::Open => &self.open,
        };
        let counter = if decision.is_allowed() { &by.allowed } else { &by.refused };
        counter.increment(1);
        by.seconds.record(took);
    }
}

impl BySource {
    fn new(source: &'static str) -> Self {
        let counter = |verdict| counter(source, verdict);
        Self { allowed: counter("allowed"), refused: counter("refused"), seconds: seconds(source) }
    }
}

impl Undecided {
    fn new() -> Self {
        const SOURCE: &str = "none";
        Self {
            allowed: counter(SOURCE, "allowed"),
            forbidden: counter(SOURCE, "forbidden"),
            ambiguous: counter(SOURCE, "ambiguous"),
            rejected: counter(SOURCE, "rejected"),
            unavailable: counter(SOURCE, "unavailable"),
            seconds: seconds(SOURCE),
        }
    }
}

/// Registers the counter of a source and a verdict.
fn counter(source: &'static str, verdict: &'static str) -> Counter {
    DECISIONS.counter([("source", source), ("verdict", verdict)])
}

/// Registers the histogram of a source.
fn seconds(source: &'static str) -> Histogram {
    DECISION_SECONDS.histogram(("source", source))
}
