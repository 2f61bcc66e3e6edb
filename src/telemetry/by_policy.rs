//! The series of each policy, by its name.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use arc_swap::ArcSwap;
use metrics::{Counter, Gauge, Histogram};

use super::gauges::Last;
use super::names::{self, Metric};
use crate::core::{Mode, Outcome, PolicyName};

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
    ratios: OnceLock<Ratios>,
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
pub(super) struct Ratios {
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

    pub(super) fn ratios(&self) -> &Ratios {
        self.ratios.get_or_init(|| Ratios {
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
