//! The series that are registered, in groups.

use std::sync::OnceLock;

use metrics::{Counter, Histogram};

use super::by_policy::ByPolicy;
use super::gauges::{Last, Sum};
use super::names;

/// The series without the label `policy`, and those of each policy. Series that belong together are registered with
/// their first event, so that the others are seen at 0: Prometheus sees no increase in a series that begins at 1.
#[derive(Debug, Default)]
pub(super) struct Series {
    decisions: OnceLock<Decisions>,
    stores: OnceLock<Stores>,
    ratios: OnceLock<Ratios>,
    pub(super) policies: ByPolicy,
}

#[derive(Debug)]
pub(super) struct Decisions {
    /// In the order of [`Source`](crate::core::Source): allowed and refused, and the time of both.
    pub(super) sources: [([Counter; 2], Histogram); 6],
    /// Requests to which no policy applies.
    pub(super) unlimited: Counter,
    /// In the order of [`Undecided`](super::Undecided).
    pub(super) undecided: [Counter; 4],
    /// Of decisions that failed: other requests without a decision took no time of a store.
    pub(super) failed_seconds: Histogram,
}

#[derive(Debug)]
pub(super) struct Stores {
    /// Timeouts, lost connections, and others.
    pub(super) failures: [Counter; 3],
    pub(super) open: Sum,
    /// Opened and closed.
    pub(super) changes: [Counter; 2],
    pub(super) slots_held: Sum,
    pub(super) slots_lost: Counter,
}

#[derive(Debug)]
pub(super) struct Ratios {
    /// Replied and failed.
    pub(super) reports: [Counter; 2],
    pub(super) counters: Last,
    pub(super) live: Last,
}

impl Series {
    /// Registers the series of stores, too: each is seen at 0 from the first decision on.
    pub(super) fn decisions(&self) -> &Decisions {
        self.decisions.get_or_init(|| {
            self.stores();
            let counter = |source, verdict| names::DECISIONS.counter(&[("source", source), ("verdict", verdict)]);
            let seconds = |source| names::DECISION_SECONDS.histogram(&[("source", source)]);
            let of = |source| (["allowed", "refused"].map(|verdict| counter(source, verdict)), seconds(source));
            let undecided = |verdict| counter("none", verdict);
            Decisions {
                sources: ["store", "deny_cache", "lease", "ratio", "fallback", "open"].map(of),
                unlimited: undecided("allowed"),
                undecided: ["forbidden", "ambiguous", "rejected", "unavailable"].map(undecided),
                failed_seconds: seconds("none"),
            }
        })
    }

    pub(super) fn stores(&self) -> &Stores {
        self.stores.get_or_init(|| Stores {
            failures: ["timeout", "connection", "store"].map(|kind| names::STORE_FAILURES.counter(&[("kind", kind)])),
            open: Sum::new(names::BREAKERS_OPEN.gauge(&[])),
            changes: ["open", "closed"].map(|to| names::BREAKER_CHANGES.counter(&[("to", to)])),
            slots_held: Sum::new(names::SLOTS_HELD.gauge(&[])),
            slots_lost: names::SLOTS_LOST.counter(&[]),
        })
    }

    pub(super) fn ratios(&self) -> &Ratios {
        self.ratios.get_or_init(|| Ratios {
            reports: ["replied", "failed"].map(|result| names::RATIO_REPORTS.counter(&[("result", result)])),
            counters: Last(names::RATIO_COUNTERS.gauge(&[])),
            live: Last(names::RATIO_LIVE.gauge(&[])),
        })
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        if self.ratios.get().is_some() {
            self.policies.for_each(|_, policy| policy.ratios().highest.set(0.0));
        }
    }
}
