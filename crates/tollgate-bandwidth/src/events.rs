//! Metrics of flows, counted once for each portion, not for each unit.
//!
//! Series are registered with their first event and kept for as long as their key has flows, because looking one up
//! costs more than counting. docs/metrics.md of `tollgate` lists them.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, clippy::unused_self, reason = "nothing is counted without the feature")
)]

#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(feature = "metrics")]
use metrics::{Counter, Histogram, Unit, counter, describe_counter, describe_histogram, histogram};
use tollgate::Decision;
#[cfg(feature = "metrics")]
use tollgate::Source;
#[cfg(feature = "metrics")]
use tollgate::policy::PolicyName;
use tollgate::store::Check;

#[derive(Debug)]
pub(crate) struct Metrics {
    #[cfg(feature = "metrics")]
    policies: Vec<(PolicyName, OnceLock<Series>)>,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Series {
    units: [Counter; 2],
    portions: [Counter; 2],
    waits: Histogram,
    cuts: Counter,
}

impl Metrics {
    pub(crate) fn new(checks: &[Check]) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            policies: checks.iter().map(|check| (check.counter.policy().clone(), OnceLock::new())).collect(),
        }
    }

    pub(crate) fn portion_decided(&self, decision: &Decision) {
        #[cfg(feature = "metrics")]
        self.series(decision).for_each(|series| series.portions[usize::from(!decision.is_allowed())].increment(1));
    }

    pub(crate) fn portion_closed(&self, decision: &Decision, passed: u64, refunded: u64) {
        #[cfg(feature = "metrics")]
        if decision.source() != Source::FailOpen {
            for series in self.series(decision) {
                series.units[0].increment(passed);
                series.units[1].increment(refunded);
            }
        }
    }

    pub(crate) fn waited(&self, time: Duration) {
        #[cfg(feature = "metrics")]
        self.policies.iter().for_each(|policy| series(policy).waits.record(time));
    }

    pub(crate) fn cut(&self, policy: &str) {
        #[cfg(feature = "metrics")]
        self.named(policy).into_iter().for_each(|series| series.cuts.increment(1));
    }
}

#[cfg(feature = "metrics")]
impl Metrics {
    fn series(&self, decision: &Decision) -> impl Iterator<Item = &Series> {
        decision.outcomes().iter().filter_map(|outcome| self.named(outcome.policy()))
    }

    fn named(&self, name: &str) -> Option<&Series> {
        self.policies.iter().find(|(policy, _)| policy.as_str() == name).map(series)
    }
}

#[cfg(feature = "metrics")]
fn series((policy, series): &(PolicyName, OnceLock<Series>)) -> &Series {
    const UNITS: &str = "tollgate_flow_units_total";
    const PORTIONS: &str = "tollgate_flow_portions_total";
    const WAITS: &str = "tollgate_flow_wait_seconds";
    const CUTS: &str = "tollgate_flow_cuts_total";
    series.get_or_init(|| {
        let name = || policy.as_str().to_owned();
        let units = "Units of flows, such as bytes and messages, that have passed, or that were leased and refunded.";
        describe_counter!(UNITS, Unit::Count, units);
        describe_counter!(PORTIONS, Unit::Count, "Decisions about portions of flows, by the verdict.");
        let waits = "How long chunks and messages of flows waited, where none were leased.";
        describe_histogram!(WAITS, Unit::Seconds, waits);
        describe_counter!(CUTS, Unit::Count, "Bodies that were cut, as the limit of their bytes was reached.");
        Series {
            units: ["passed", "refunded"].map(|kind| counter!(UNITS, "policy" => name(), "kind" => kind)),
            portions: ["allowed", "denied"].map(|verdict| counter!(PORTIONS, "policy" => name(), "verdict" => verdict)),
            waits: histogram!(WAITS, "policy" => name()),
            cuts: counter!(CUTS, "policy" => name()),
        }
    })
}
