//! The names, units and descriptions of all metrics.
//!
//! Names and labels are public: dashboards and alerts depend on them. docs/metrics.md explains each.

use metrics::{Counter, Gauge, Histogram, Label, Unit};

/// A metric. It is described whenever a handle is made: recorders keep one description for each name.
pub(super) struct Metric {
    name: &'static str,
    unit: Unit,
    /// The description that recorders show to operators.
    text: &'static str,
}

/// Labels: `source`, `verdict`.
pub(super) const DECISIONS: Metric = Metric {
    name: "tollgate_decisions_total",
    unit: Unit::Count,
    text: "Decisions, by what made them and their verdict.",
};

/// Labels: `source`.
pub(super) const DECISION_SECONDS: Metric = Metric {
    name: "tollgate_decision_seconds",
    unit: Unit::Seconds,
    text: "How long decisions took, from the call of the store, by what made them.",
};

/// Labels: `policy`, `mode`.
pub(super) const POLICY_REFUSALS: Metric = Metric {
    name: "tollgate_policy_refusals_total",
    unit: Unit::Count,
    text: "Decisions in which a policy refused, or, in shadow mode, would have refused.",
};

/// Labels: `policy`, `mode`.
pub(super) const BANS: Metric =
    Metric { name: "tollgate_bans_total", unit: Unit::Count, text: "Bans that began, or, in shadow mode, would have." };

/// Labels: `policy`, `mode`.
pub(super) const BAN_REFUSALS: Metric = Metric {
    name: "tollgate_ban_refusals_total",
    unit: Unit::Count,
    text: "Decisions in which a policy refused a banned key, or, in shadow mode, would have refused it.",
};

/// Labels: `policy`.
pub(super) const AMBIGUOUS_KEYS: Metric = Metric {
    name: "tollgate_ambiguous_keys_total",
    unit: Unit::Count,
    text: "Requests whose key was ambiguous for a policy.",
};

/// Labels: `policy`, `reason`.
pub(super) const POLICIES_SKIPPED: Metric = Metric {
    name: "tollgate_policies_skipped_total",
    unit: Unit::Count,
    text: "Requests that a policy did not count, by the reason.",
};

/// Labels: `kind`.
pub(super) const STORE_FAILURES: Metric = Metric {
    name: "tollgate_store_failures_total",
    unit: Unit::Count,
    text: "Decisions that a store failed to make, by the kind of failure.",
};

/// No labels.
pub(super) const BREAKERS_OPEN: Metric = Metric {
    name: "tollgate_breakers_open",
    unit: Unit::Count,
    text: "Circuit breakers that are not closed: only single probes call their store.",
};

/// Labels: `to`.
pub(super) const BREAKER_CHANGES: Metric = Metric {
    name: "tollgate_breaker_changes_total",
    unit: Unit::Count,
    text: "How often circuit breakers opened, and closed again; probes in between do not count.",
};

/// No labels.
pub(super) const SLOTS_HELD: Metric = Metric {
    name: "tollgate_slots_held",
    unit: Unit::Count,
    text: "Slots of concurrency limits that requests of this process hold.",
};

/// No labels.
pub(super) const SLOTS_LOST: Metric = Metric {
    name: "tollgate_slots_lost_total",
    unit: Unit::Count,
    text: "Slots that were still held, and gone from the store when they were renewed.",
};

/// Labels: `policy`, `kind`.
pub(super) const FLOW_UNITS: Metric = Metric {
    name: "tollgate_flow_units_total",
    unit: Unit::Count,
    text: "Units of flows, such as bytes and messages, that have passed, or that were leased and refunded.",
};

/// Labels: `policy`, `verdict`.
pub(super) const FLOW_PORTIONS: Metric = Metric {
    name: "tollgate_flow_portions_total",
    unit: Unit::Count,
    text: "Decisions about portions of flows, by the verdict.",
};

/// Labels: `policy`.
pub(super) const FLOW_WAIT_SECONDS: Metric = Metric {
    name: "tollgate_flow_wait_seconds",
    unit: Unit::Seconds,
    text: "How long chunks and messages of flows waited, where none were leased.",
};

/// Labels: `policy`.
pub(super) const FLOW_CUTS: Metric = Metric {
    name: "tollgate_flow_cuts_total",
    unit: Unit::Count,
    text: "Bodies that were cut, as the limit of their bytes was reached.",
};

/// Labels: `policy`, `class`.
pub(super) const SHED_OFFERED: Metric = Metric {
    name: "tollgate_shed_offered_total",
    unit: Unit::Count,
    text: "Requests that came to a shedder, by their class.",
};

/// Labels: `policy`, `class`.
pub(super) const SHED: Metric =
    Metric { name: "tollgate_shed_total", unit: Unit::Count, text: "Requests that a shedder shed, by their class." };

/// Labels: `policy`.
pub(super) const SHED_LEVEL: Metric = Metric {
    name: "tollgate_shed_level",
    unit: Unit::Count,
    text: "How far shedding by a worker shedder has come, from 0 to 1.",
};

/// Labels: `policy`.
pub(super) const SHED_UTILIZATION: Metric = Metric {
    name: "tollgate_shed_utilization",
    unit: Unit::Count,
    text: "How much is in progress by the last sample of a worker shedder, where 1 is full.",
};

/// Labels: `result`.
pub(super) const RATIO_REPORTS: Metric = Metric {
    name: "tollgate_ratio_reports_total",
    unit: Unit::Count,
    text: "Reports of ratio stores to their tally, by whether it replied.",
};

/// No labels.
pub(super) const RATIO_COUNTERS: Metric = Metric {
    name: "tollgate_ratio_counters",
    unit: Unit::Count,
    text: "Counters in the last report of a ratio store.",
};

/// No labels.
pub(super) const RATIO_LIVE: Metric = Metric {
    name: "tollgate_ratio_live",
    unit: Unit::Count,
    text: "Processes that reported in the last tick; 0 if that is not known.",
};

/// Labels: `policy`.
pub(super) const RATIO_HIGHEST: Metric = Metric {
    name: "tollgate_ratio_highest",
    unit: Unit::Count,
    text: "The highest drop ratio of a policy's keys in the last tick, from 0 to 1.",
};

/// Labels: `policy`.
pub(super) const RATIO_DROPPED_UNITS: Metric = Metric {
    name: "tollgate_ratio_dropped_units_total",
    unit: Unit::Count,
    text: "Units that a policy dropped by ratios, or, in shadow mode, would have dropped.",
};

impl Metric {
    /// Returns the counter of fixed labels.
    pub(super) fn counter<const N: usize>(&self, labels: [(&'static str, &'static str); N]) -> Counter {
        self.counter_of(labels.iter().map(Label::from).collect())
    }

    /// Returns the counter of labels; one of them may be the name of a policy.
    pub(super) fn counter_of(&self, labels: Vec<Label>) -> Counter {
        metrics::describe_counter!(self.name, self.unit, self.text);
        metrics::counter!(self.name, labels)
    }

    /// Returns the gauge, which has no labels.
    pub(super) fn gauge(&self) -> Gauge {
        self.gauge_of(Vec::new())
    }

    /// Returns the gauge of labels; one of them may be the name of a policy.
    pub(super) fn gauge_of(&self, labels: Vec<Label>) -> Gauge {
        metrics::describe_gauge!(self.name, self.unit, self.text);
        metrics::gauge!(self.name, labels)
    }

    /// Returns the histogram of a label.
    pub(super) fn histogram(&self, label: (&'static str, &'static str)) -> Histogram {
        self.histogram_of(vec![Label::from(&label)])
    }

    /// Returns the histogram of labels; one of them may be the name of a policy.
    pub(super) fn histogram_of(&self, labels: Vec<Label>) -> Histogram {
        metrics::describe_histogram!(self.name, self.unit, self.text);
        metrics::histogram!(self.name, labels)
    }
}
