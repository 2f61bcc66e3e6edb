//! Names, units and descriptions of all metrics, and the registered series in groups.
//!
//! Names and labels are public: dashboards and alerts depend on them. docs/metrics.md explains each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use metrics::{Counter, Gauge, Histogram, Label, Unit};

use crate::core::{Mode, Outcome, PolicyName, Source};

/// Series without the label `policy`, and the series of each policy.
///
/// Related series are registered together with their first event, because Prometheus sees no increase in a series that
/// begins at 1.
#[derive(Debug, Default)]
pub(super) struct Series {
    decisions: OnceLock<Decisions>,
    stores: OnceLock<Stores>,
    pub(super) policies: ByPolicy,
}

#[derive(Debug)]
pub(super) struct Decisions {
    /// In the order of [`Source`](crate::core::Source): allowed, denied, and the time of both.
    pub(super) sources: [([Counter; 2], Histogram); 7],
    pub(super) unlimited: Counter,
    /// In the order of [`Undecided`](super::Undecided).
    pub(super) undecided: [Counter; 4],
    /// Only decisions that failed: other requests without a decision took no time of a store.
    pub(super) failed_seconds: Histogram,
}

#[derive(Debug)]
pub(super) struct Stores {
    pub(super) failures: [Counter; 3],
    pub(super) open: Sum,
    pub(super) changes: [Counter; 2],
    pub(super) slots_held: Sum,
    pub(super) slots_lost: Counter,
}

impl Series {
    /// Also registers the series of stores, so that each is seen at 0 from the first decision on.
    pub(super) fn decisions(&self) -> &Decisions {
        self.decisions.get_or_init(|| {
            self.stores();
            let counter = |source, verdict| DECISIONS.counter(&[("source", source), ("verdict", verdict)]);
            let seconds = |source| DECISION_SECONDS.histogram(&[("source", source)]);
            let of = |source| (["allowed", "denied"].map(|verdict| counter(source, verdict)), seconds(source));
            let sources = [
                Source::Store,
                Source::DenyCache,
                Source::Lease,
                Source::Ratio,
                Source::Fallback,
                Source::FailOpen,
                Source::Override,
            ];
            let undecided = |verdict| counter("none", verdict);
            Decisions {
                sources: sources.map(|source| of(source.as_str())),
                unlimited: undecided("allowed"),
                undecided: ["forbidden", "ambiguous", "rejected", "unavailable"].map(undecided),
                failed_seconds: seconds("none"),
            }
        })
    }

    pub(super) fn stores(&self) -> &Stores {
        self.stores.get_or_init(|| Stores {
            failures: ["timeout", "connection", "store"].map(|kind| STORE_FAILURES.counter(&[("kind", kind)])),
            open: Sum::new(BREAKERS_OPEN.gauge(&[])),
            changes: ["open", "closed"].map(|to| BREAKER_CHANGES.counter(&[("to", to)])),
            slots_held: Sum::new(SLOTS_HELD.gauge(&[])),
            slots_lost: SLOTS_LOST.counter(&[]),
        })
    }
}

const MAX_POLICIES: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct ByPolicy(ArcSwap<HashMap<PolicyName, Arc<PolicySeries>>>);

impl ByPolicy {
    pub(super) fn with(&self, name: &PolicyName, count: impl FnOnce(&PolicySeries)) {
        if let Some(series) = self.0.load().get(name) {
            return count(series);
        }
        let series = Arc::new(PolicySeries::new(name));
        if self.0.load().len() < MAX_POLICIES {
            self.0.rcu(|each| {
                let mut each = HashMap::clone(each);
                each.entry(name.clone()).or_insert_with(|| Arc::clone(&series));
                each
            });
        }
        // Handles of the same names count together.
        count(&series);
    }
}

#[derive(Debug, Default)]
pub(super) struct PolicySeries {
    name: String,
    refusals: [OnceLock<Counter>; 2],
    /// By mode: bans that began, and denials by them.
    bans: [OnceLock<[Counter; 2]>; 2],
    near_limit: OnceLock<Counter>,
    ambiguous: OnceLock<Counter>,
    unknown_tiers: OnceLock<Counter>,
    skipped: OnceLock<[Counter; 4]>,
}

impl PolicySeries {
    pub(super) fn new(name: &PolicyName) -> Self {
        Self { name: name.as_str().to_owned(), ..Self::default() }
    }

    pub(super) fn count(&self, outcome: &Outcome) {
        let mode = outcome.mode();
        let refusals = self.refusals[mode as usize].get_or_init(|| POLICY_DENIALS.counter(&self.labels(mode)));
        if !outcome.is_allowed() {
            refusals.increment(1);
        }
        if outcome.has_ban() {
            let [began, refused] = self.bans(mode);
            began.increment(outcome.has_begun_ban().into());
            refused.increment(outcome.is_banned().into());
        }
        self.near_limit();
        self.ambiguous();
        self.unknown_tiers();
        self.skipped();
    }

    pub(super) fn bans(&self, mode: Mode) -> &[Counter; 2] {
        self.bans[mode as usize].get_or_init(|| [BANS, BAN_DENIALS].map(|metric| metric.counter(&self.labels(mode))))
    }

    pub(super) fn near_limit(&self) -> &Counter {
        self.near_limit.get_or_init(|| NEAR_LIMIT.counter(&[self.label()]))
    }

    pub(super) fn ambiguous(&self) -> &Counter {
        self.ambiguous.get_or_init(|| AMBIGUOUS_KEYS.counter(&[self.label()]))
    }

    pub(super) fn unknown_tiers(&self) -> &Counter {
        self.unknown_tiers.get_or_init(|| UNKNOWN_TIERS.counter(&[self.label()]))
    }

    /// In the order of [`Skipped`](super::Skipped).
    pub(super) fn skipped(&self) -> &[Counter; 4] {
        self.skipped.get_or_init(|| {
            let counter = |reason| POLICIES_SKIPPED.counter(&[self.label(), ("reason", reason)]);
            ["key_missing", "list", "scope", "override"].map(counter)
        })
    }

    fn label(&self) -> (&'static str, &str) {
        ("policy", self.name.as_str())
    }

    fn labels(&self, mode: Mode) -> [(&'static str, &str); 2] {
        [self.label(), ("mode", ["enforce", "shadow"][mode as usize])]
    }
}

/// Dropping it subtracts its part.
#[derive(Debug)]
pub(super) struct Sum {
    gauge: Gauge,
    added: AtomicU64,
}

#[allow(clippy::cast_precision_loss, reason = "there are far fewer breakers and slots")]
impl Sum {
    fn new(gauge: Gauge) -> Self {
        Self { gauge, added: AtomicU64::new(0) }
    }

    pub(super) fn add(&self, count: u64) {
        self.added.fetch_add(count, Ordering::Relaxed);
        self.gauge.increment(count as f64);
    }

    pub(super) fn subtract(&self, count: u64) {
        self.added.fetch_sub(count, Ordering::Relaxed);
        self.gauge.decrement(count as f64);
    }
}

impl Drop for Sum {
    fn drop(&mut self) {
        let left = *self.added.get_mut();
        if left > 0 {
            self.subtract(left);
        }
    }
}

/// Described whenever a handle is made, because recorders keep one description for each name.
struct Metric {
    name: &'static str,
    unit: Unit,
    text: &'static str,
}

const DECISIONS: Metric = count("tollgate_decisions_total", "Decisions, by what made them and their verdict.");

const DECISION_SECONDS: Metric =
    seconds("tollgate_decision_seconds", "How long decisions took, from the call of the store, by what made them.");

const POLICY_DENIALS: Metric = count(
    "tollgate_policy_denials_total",
    "Decisions in which a policy denied the request, or, in shadow mode, would have.",
);

const BANS: Metric = count("tollgate_bans_total", "Bans that began, or, in shadow mode, would have.");

const BAN_DENIALS: Metric = count(
    "tollgate_ban_denials_total",
    "Decisions in which a policy denied a banned key, or, in shadow mode, would have.",
);

const NEAR_LIMIT: Metric = count("tollgate_near_limit_total", "Allowed requests that left little of a policy's limit.");

const AMBIGUOUS_KEYS: Metric = count("tollgate_ambiguous_keys_total", "Requests whose key was ambiguous for a policy.");

const UNKNOWN_TIERS: Metric = count(
    "tollgate_unknown_tiers_total",
    "Requests whose tier was not known for a policy, as its lookup was late or failed.",
);

const POLICIES_SKIPPED: Metric =
    count("tollgate_policies_skipped_total", "Requests that a policy did not count, by the reason.");

const STORE_FAILURES: Metric =
    count("tollgate_store_failures_total", "Decisions that a store failed to make, by the kind of failure.");

const BREAKERS_OPEN: Metric =
    count("tollgate_breakers_open", "Circuit breakers that are not closed: only single probes call their store.");

const BREAKER_CHANGES: Metric = count(
    "tollgate_breaker_changes_total",
    "How often circuit breakers opened, and closed again; probes in between do not count.",
);

const SLOTS_HELD: Metric =
    count("tollgate_slots_held", "Slots of concurrency limits that requests of this process hold.");

const SLOTS_LOST: Metric =
    count("tollgate_slots_lost_total", "Slots that were still held, and gone from the store when they were renewed.");

const fn count(name: &'static str, text: &'static str) -> Metric {
    Metric { name, unit: Unit::Count, text }
}

const fn seconds(name: &'static str, text: &'static str) -> Metric {
    Metric { name, unit: Unit::Seconds, text }
}

type Labels<'a> = &'a [(&'static str, &'a str)];

impl Metric {
    fn counter(&self, labels: Labels<'_>) -> Counter {
        metrics::describe_counter!(self.name, self.unit, self.text);
        metrics::counter!(self.name, owned(labels))
    }

    fn gauge(&self, labels: Labels<'_>) -> Gauge {
        metrics::describe_gauge!(self.name, self.unit, self.text);
        metrics::gauge!(self.name, owned(labels))
    }

    fn histogram(&self, labels: Labels<'_>) -> Histogram {
        metrics::describe_histogram!(self.name, self.unit, self.text);
        metrics::histogram!(self.name, owned(labels))
    }
}

fn owned(labels: Labels<'_>) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect()
}
