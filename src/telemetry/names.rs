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
pub(super) const DECISIONS: Metric =
    count("tollgate_decisions_total", "Decisions, by what made them and their verdict.");

/// Labels: `source`.
pub(super) const DECISION_SECONDS: Metric =
    seconds("tollgate_decision_seconds", "How long decisions took, from the call of the store, by what made them.");

/// Labels: `policy`, `mode`.
pub(super) const POLICY_REFUSALS: Metric = count(
    "tollgate_policy_refusals_total",
    "Decisions in which a policy refused, or, in shadow mode, would have refused.",
);

/// Labels: `policy`, `mode`.
pub(super) const BANS: Metric = count("tollgate_bans_total", "Bans that began, or, in shadow mode, would have.");

/// Labels: `policy`, `mode`.
pub(super) const BAN_REFUSALS: Metric = count(
    "tollgate_ban_refusals_total",
    "Decisions in which a policy refused a banned key, or, in shadow mode, would have refused it.",
);

/// Labels: `policy`.
pub(super) const AMBIGUOUS_KEYS: Metric =
    count("tollgate_ambiguous_keys_total", "Requests whose key was ambiguous for a policy.");

/// Labels: `policy`.
pub(super) const UNKNOWN_TIERS: Metric = count(
    "tollgate_unknown_tiers_total",
    "Requests whose tier was not known for a policy, as its lookup was late or failed.",
);

/// Labels: `policy`, `reason`.
pub(super) const POLICIES_SKIPPED: Metric =
    count("tollgate_policies_skipped_total", "Requests that a policy did not count, by the reason.");

/// Labels: `kind`.
pub(super) const STORE_FAILURES: Metric =
    count("tollgate_store_failures_total", "Decisions that a store failed to make, by the kind of failure.");

/// No labels.
pub(super) const BREAKERS_OPEN: Metric =
    count("tollgate_breakers_open", "Circuit breakers that are not closed: only single probes call their store.");

/// Labels: `to`.
pub(super) const BREAKER_CHANGES: Metric = count(
    "tollgate_breaker_changes_total",
    "How often circuit breakers opened, and closed again; probes in between do not count.",
);

/// No labels.
pub(super) const SLOTS_HELD: Metric =
    count("tollgate_slots_held", "Slots of concurrency limits that requests of this process hold.");

/// No labels.
pub(super) const SLOTS_LOST: Metric =
    count("tollgate_slots_lost_total", "Slots that were still held, and gone from the store when they were renewed.");

/// Labels: `policy`, `kind`.
pub(super) const FLOW_UNITS: Metric = count(
    "tollgate_flow_units_total",
    "Units of flows, such as bytes and messages, that have passed, or that were leased and refunded.",
);

/// Labels: `policy`, `verdict`.
pub(super) const FLOW_PORTIONS: Metric =
    count("tollgate_flow_portions_total", "Decisions about portions of flows, by the verdict.");

/// Labels: `policy`.
pub(super) const FLOW_WAIT_SECONDS: Metric =
    seconds("tollgate_flow_wait_seconds", "How long chunks and messages of flows waited, where none were leased.");

/// Labels: `policy`.
pub(super) const FLOW_CUTS: Metric =
    count("tollgate_flow_cuts_total", "Bodies that were cut, as the limit of their bytes was reached.");

/// Labels: `policy`, `class`.
pub(super) const SHED_OFFERED: Metric =
    count("tollgate_shed_offered_total", "Requests that came to a shedder, by their class.");

/// Labels: `policy`, `class`.
pub(super) const SHED: Metric = count("tollgate_shed_total", "Requests that a shedder shed, by their class.");

/// Labels: `policy`.
pub(super) const SHED_LEVEL: Metric =
    count("tollgate_shed_level", "How far shedding by a worker shedder has come, from 0 to 1.");

/// Labels: `policy`.
pub(super) const SHED_UTILIZATION: Metric = count(
    "tollgate_shed_utilization",
    "How much is in progress by the last sample of a worker shedder, where 1 is full.",
);

/// Labels: `result`.
pub(super) const RATIO_REPORTS: Metric =
    count("tollgate_ratio_reports_total", "Reports of ratio stores to their tally, by whether it replied.");

/// No labels.
pub(super) const RATIO_COUNTERS: Metric =
    count("tollgate_ratio_counters", "Counters in the last report of a ratio store.");

/// No labels.
pub(super) const RATIO_LIVE: Metric =
    count("tollgate_ratio_live", "Processes that reported in the last tick; 0 if that is not known.");

/// Labels: `policy`.
pub(super) const RATIO_HIGHEST: Metric =
    count("tollgate_ratio_highest", "The highest drop ratio of a policy's keys in the last tick, from 0 to 1.");

/// Labels: `policy`.
pub(super) const RATIO_DROPPED_UNITS: Metric = count(
    "tollgate_ratio_dropped_units_total",
    "Units that a policy dropped by ratios, or, in shadow mode, would have dropped.",
);

const fn count(name: &'static str, text: &'static str) -> Metric {
    Metric { name, unit: Unit::Count, text }
}

const fn seconds(name: &'static str, text: &'static str) -> Metric {
    Metric { name, unit: Unit::Seconds, text }
}

/// Names and values of labels; a value may be the name of a policy.
type Labels<'a> = &'a [(&'static str, &'a str)];

impl Metric {
    pub(super) fn counter(&self, labels: Labels<'_>) -> Counter {
        metrics::describe_counter!(self.name, self.unit, self.text);
        metrics::counter!(self.name, owned(labels))
    }

    pub(super) fn gauge(&self, labels: Labels<'_>) -> Gauge {
        metrics::describe_gauge!(self.name, self.unit, self.text);
        metrics::gauge!(self.name, owned(labels))
    }

    pub(super) fn histogram(&self, labels: Labels<'_>) -> Histogram {
        metrics::describe_histogram!(self.name, self.unit, self.text);
        metrics::histogram!(self.name, owned(labels))
    }
}

fn owned(labels: Labels<'_>) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())).collect()
}
