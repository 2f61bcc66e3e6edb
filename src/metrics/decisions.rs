//! Counts and times the decisions of a layer or limiter, by what made them.
//!
//! Every request counts once: by the source and the verdict of its decision, or, if there was none, under the source
//! `none` by the reason. Only decisions are timed, from the call of the store; extracting and looking up keys is not.

use std::sync::OnceLock;

use metrics::{Counter, Histogram};
use tokio::time::Instant;

use super::health;
use super::names::{DECISION_SECONDS, DECISIONS};
use super::{Refusals, Undecided as Reason};
use crate::core::{Decided, Decision, Error, Source};

/// The time of the call of a store.
#[derive(Clone, Copy)]
pub(crate) struct Timer(Instant);

impl Timer {
    /// Starts now, by tokio's clock.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Records the time since then.
    fn stop(self, seconds: &Histogram) {
        seconds.record(self.0.elapsed());
    }
}

/// Counts the decisions of a layer. Its handles are registered at the first one, with the recorder installed by then.
#[derive(Clone, Default)]
pub(crate) struct Decisions {
    handles: OnceLock<Box<Handles>>,
}

/// The handles, one for each source.
#[derive(Clone)]
struct Handles {
    /// Decisions of the store itself.
    store: BySource,
    /// Refusals that were cached.
    deny_cache: BySource,
    /// Decisions on leased units.
    lease: BySource,
    /// Decisions of the local store during an outage.
    fallback: BySource,
    /// Requests that were admitted without a limit during an outage.
    open: BySource,
    undecided: Undecided,
}

/// The handles of one source of decisions; a decision is allowed or refused, and always timed.
#[derive(Clone)]
struct BySource {
    allowed: Counter,
    refused: Counter,
    seconds: Histogram,
}

/// The handles of the source `none`: requests that needed no decision, or for which there was none.
#[derive(Clone)]
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
    /// Counts and times a decision, and counts the policies that refused; `policies` are those in it, in its order.
    pub(crate) fn decided<'a>(
        &self,
        timer: Timer,
        decided: &Result<Decided, Error>,
        policies: impl IntoIterator<Item = &'a Refusals>,
    ) {
        let handles = self.handles();
        let Ok(Decided { decision, .. }) = decided else {
            handles.undecided.unavailable.increment(1);
            return timer.stop(&handles.undecided.seconds);
        };
        handles.count(timer, decision);
        for (refusals, outcome) in policies.into_iter().zip(decision.outcomes()) {
            refusals.count(outcome);
        }
    }

    /// Counts a request that is refused without a decision.
    pub(crate) fn turned_away(&self, reason: Reason) {
        let undecided = &self.handles().undecided;
        let counter = match reason {
            Reason::Forbidden => &undecided.forbidden,
            Reason::Ambiguous => &undecided.ambiguous,
            Reason::Rejected => &undecided.rejected,
            Reason::Unavailable => &undecided.unavailable,
        };
        counter.increment(1);
    }

    fn handles(&self) -> &Handles {
        self.handles.get_or_init(|| Box::new(Handles::new()))
    }
}

impl Handles {
    /// Registers every series, also those of stores, so that each is seen at 0 from the first decision on.
    fn new() -> Self {
        health::announce();
        Self {
            store: BySource::new("store"),
            deny_cache: BySource::new("deny_cache"),
            lease: BySource::new("lease"),
            fallback: BySource::new("fallback"),
            open: BySource::new("open"),
            undecided: Undecided::new(),
        }
    }

    /// Counts a decision by its source; one over no policies has none, and is not timed.
    fn count(&self, timer: Timer, decision: &Decision) {
        if decision.outcomes().is_empty() {
            return self.undecided.allowed.increment(1);
        }
        let by = match decision.source() {
            Source::Store => &self.store,
            Source::DenyCache => &self.deny_cache,
            Source::Lease => &self.lease,
            Source::Fallback => &self.fallback,
            Source::Open => &self.open,
        };
        let counter = if decision.is_allowed() { &by.allowed } else { &by.refused };
        counter.increment(1);
        timer.stop(&by.seconds);
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
