//! What is decided, by whom, and in which time.

use std::sync::OnceLock;

use metrics::{Counter, Histogram};
use tokio::time::Instant;

use super::health;
use super::names::{DECISION_SECONDS, DECISIONS};
use super::{Refusals, Undecided as Reason};
use crate::core::{Decided, Decision, Error, Source};

/// When the store was asked.
#[derive(Clone, Copy)]
pub(crate) struct Timer(Instant);

impl Timer {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    fn stop(self, seconds: &Histogram) {
        seconds.record(self.0.elapsed());
    }
}

/// What a layer decides. Its handles are made with the first decision, for the recorder there is then.
#[derive(Clone, Default)]
pub(crate) struct Decisions {
    handles: OnceLock<Box<Handles>>,
}

#[derive(Clone)]
struct Handles {
    store: BySource,
    deny_cache: BySource,
    lease: BySource,
    fallback: BySource,
    open: BySource,
    undecided: Undecided,
}

#[derive(Clone)]
struct BySource {
    allowed: Counter,
    refused: Counter,
    seconds: Histogram,
}

/// Requests about which nobody had to decide, or could.
#[derive(Clone)]
struct Undecided {
    /// No policy applies.
    allowed: Counter,
    forbidden: Counter,
    ambiguous: Counter,
    rejected: Counter,
    unavailable: Counter,
    seconds: Histogram,
}

impl Decisions {
    /// Counts a decision, and the policies that refused, of those that were asked.
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

    /// Counts a request that is turned away before any decision.
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

fn counter(source: &'static str, verdict: &'static str) -> Counter {
    DECISIONS.counter([("source", source), ("verdict", verdict)])
}

fn seconds(source: &'static str) -> Histogram {
    DECISION_SECONDS.histogram(("source", source))
}
