//! The series that are registered, in groups.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use arc_swap::ArcSwap;
use metrics::{Counter, Gauge, Histogram};

use super::names::{self, Metric};
use crate::core::{Mode, Outcome, PolicyName};

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

/// How many policies have series that are kept; the handles of others are looked up each time.
const MAX_POLICIES: usize = 1_024;

/// The series of each policy, kept from the first event on.
#[derive(Debug, Default)]
pub(super) struct ByPolicy(ArcSwap<HashMap<PolicyName, Arc<PolicySeries>, RandomState>>);

impl ByPolicy {
    /// Calls `count` with the series of a policy.
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

    /// Calls `each` with all series that are kept.
    pub(super) fn for_each(&self, mut each: impl FnMut(&PolicyName, &PolicySeries)) {
        self.0.load().iter().for_each(|(name, series)| each(name, series));
    }
}

/// The series of one policy or shedder. Series that belong together are registered with their first event.
#[derive(Debug, Default)]
pub(super) struct PolicySeries {
    name: String,
    /// By the mode.
    refusals: [OnceLock<Counter>; 2],
    /// By the mode: bans that began, and refusals by them.
    bans: [OnceLock<[Counter; 2]>; 2],
    ambiguous: OnceLock<Counter>,
    unknown_tiers: OnceLock<Counter>,
    skipped: OnceLock<[Counter; 3]>,
    flows: OnceLock<Flows>,
    shedding: OnceLock<[[Counter; 4]; 2]>,
    levels: OnceLock<[Last; 2]>,
    ratios: OnceLock<PolicyRatios>,
}

#[derive(Debug)]
pub(super) struct Flows {
    /// Passed and refunded.
    pub(super) units: [Counter; 2],
    /// Allowed and refused.
    pub(super) portions: [Counter; 2],
    pub(super) waits: Histogram,
    pub(super) cuts: Counter,
}

#[derive(Debug)]
pub(super) struct PolicyRatios {
    pub(super) highest: Gauge,
    pub(super) dropped: Counter,
}

impl PolicySeries {
    pub(super) fn new(name: &PolicyName) -> Self {
        Self { name: name.as_str().to_owned(), ..Self::default() }
    }

    /// Counts an outcome. With the first one all series of outcomes are registered.
    pub(super) fn count(&self, outcome: &Outcome) {
        let mode = outcome.mode();
        let refusals = self.refusals[mode as usize].get_or_init(|| names::POLICY_REFUSALS.counter(&self.labels(mode)));
        if !outcome.is_allowed() {
            refusals.increment(1);
        }
        if outcome.has_ban() {
            let [began, refused] = self.bans(mode);
            began.increment(outcome.has_begun_ban().into());
            refused.increment(outcome.is_banned().into());
        }
        self.ambiguous();
        self.unknown_tiers();
        self.skipped();
    }

    pub(super) fn bans(&self, mode: Mode) -> &[Counter; 2] {
        self.bans[mode as usize]
            .get_or_init(|| [names::BANS, names::BAN_REFUSALS].map(|metric| metric.counter(&self.labels(mode))))
    }

    pub(super) fn ambiguous(&self) -> &Counter {
        self.ambiguous.get_or_init(|| names::AMBIGUOUS_KEYS.counter(&[self.label()]))
    }

    pub(super) fn unknown_tiers(&self) -> &Counter {
        self.unknown_tiers.get_or_init(|| names::UNKNOWN_TIERS.counter(&[self.label()]))
    }

    /// In the order of [`Skipped`](super::Skipped).
    pub(super) fn skipped(&self) -> &[Counter; 3] {
        self.skipped.get_or_init(|| {
            ["key_missing", "list", "scope"]
                .map(|reason| names::POLICIES_SKIPPED.counter(&[self.label(), ("reason", reason)]))
        })
    }

    pub(super) fn flows(&self) -> &Flows {
        self.flows.get_or_init(|| Flows {
            units: ["passed", "refunded"].map(|kind| names::FLOW_UNITS.counter(&[self.label(), ("kind", kind)])),
            portions: ["allowed", "refused"]
                .map(|verdict| names::FLOW_PORTIONS.counter(&[self.label(), ("verdict", verdict)])),
            waits: names::FLOW_WAIT_SECONDS.histogram(&[self.label()]),
            cuts: names::FLOW_CUTS.counter(&[self.label()]),
        })
    }

    /// Offered and shed, by the class.
    pub(super) fn shedding(&self) -> &[[Counter; 4]; 2] {
        let counter = |metric: &Metric, class| metric.counter(&[self.label(), ("class", class)]);
        self.shedding.get_or_init(|| {
            [names::SHED_OFFERED, names::SHED]
                .map(|metric| ["critical", "write", "read", "test"].map(|class| counter(&metric, class)))
        })
    }

    /// The level and the utilization, which only a worker shedder has.
    pub(super) fn levels(&self) -> &[Last; 2] {
        self.levels.get_or_init(|| {
            [names::SHED_LEVEL, names::SHED_UTILIZATION].map(|metric| Last(metric.gauge(&[self.label()])))
        })
    }

    pub(super) fn ratios(&self) -> &PolicyRatios {
        self.ratios.get_or_init(|| PolicyRatios {
            highest: names::RATIO_HIGHEST.gauge(&[self.label()]),
            dropped: names::RATIO_DROPPED_UNITS.counter(&[self.label()]),
        })
    }

    fn label(&self) -> (&'static str, &str) {
        ("policy", self.name.as_str())
    }

    fn labels(&self, mode: Mode) -> [(&'static str, &str); 2] {
        [self.label(), ("mode", ["enforce", "shadow"][mode as usize])]
    }
}

/// A gauge that several layers set: it shows the last value, and 0 when a layer is dropped.
#[derive(Debug)]
pub(super) struct Last(pub(super) Gauge);

impl Last {
    pub(super) fn set(&self, value: f64) {
        self.0.set(value);
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.0.set(0.0);
    }
}

/// A gauge to which several layers add. What this one added is subtracted when it is dropped.
#[derive(Debug)]
pub(super) struct Sum {
    gauge: Gauge,
    added: AtomicU64,
}

#[allow(clippy::cast_precision_loss, reason = "there are far fewer breakers and slots")]
impl Sum {
    pub(super) fn new(gauge: Gauge) -> Self {
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
