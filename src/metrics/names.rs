//! The metrics, by name; docs/metrics.md tells what to make of them.

use metrics::{Counter, Gauge, Histogram, Label, Unit};

/// A metric. Whoever makes a handle describes it too: recorders keep one description a name.
pub(super) struct Metric {
    name: &'static str,
    unit: Unit,
    text: &'static str,
}

pub(super) const DECISIONS: Metric = Metric {
    name: "tollgate_decisions_total",
    unit: Unit::Count,
    text: "Decisions: who made them, and what they were.",
};

pub(super) const DECISION_SECONDS: Metric = Metric {
    name: "tollgate_decision_seconds",
    unit: Unit::Seconds,
    text: "How long decisions took, from asking the store, by who made them.",
};

pub(super) const POLICY_REFUSALS: Metric = Metric {
    name: "tollgate_policy_refusals_total",
    unit: Unit::Count,
    text: "Decisions in which a policy refused; in shadow, in which it would have.",
};

pub(super) const AMBIGUOUS_KEYS: Metric = Metric {
    name: "tollgate_ambiguous_keys_total",
    unit: Unit::Count,
    text: "Requests of which a policy could not tell for certain whom to count.",
};

pub(super) const STORE_FAILURES: Metric = Metric {
    name: "tollgate_store_failures_total",
    unit: Unit::Count,
    text: "Decisions a store was asked for and did not make, by what went wrong.",
};

pub(super) const BREAKERS_OPEN: Metric = Metric {
    name: "tollgate_breakers_open",
    unit: Unit::Count,
    text: "Circuit breakers that are not closed: their store is not asked, but by single probes.",
};

pub(super) const BREAKER_CHANGES: Metric = Metric {
    name: "tollgate_breaker_changes_total",
    unit: Unit::Count,
    text: "How often a circuit breaker opened, and closed again; probes in between are no change.",
};

impl Metric {
    pub(super) fn counter<const N: usize>(&self, labels: [(&'static str, &'static str); N]) -> Counter {
        self.counter_of(labels.iter().map(Label::from).collect())
    }

    pub(super) fn counter_of(&self, labels: Vec<Label>) -> Counter {
        metrics::describe_counter!(self.name, self.unit, self.text);
        metrics::counter!(self.name, labels)
    }

    pub(super) fn gauge(&self) -> Gauge {
        metrics::describe_gauge!(self.name, self.unit, self.text);
        metrics::gauge!(self.name)
    }

    pub(super) fn histogram(&self, label: (&'static str, &'static str)) -> Histogram {
        metrics::describe_histogram!(self.name, self.unit, self.text);
        metrics::histogram!(self.name, &[label])
    }
}
