//! Counts what passes in flows, by policy: once for each portion, not for each unit.

use std::time::Duration;

use metrics::{Counter, Histogram, Label};

use super::by_policy::ByPolicy;
use super::names::{FLOW_CUTS, FLOW_PORTIONS, FLOW_UNITS, FLOW_WAIT_SECONDS};
use crate::core::PolicyName;
use crate::core::observer::ObserveFlows;

/// The flows of a layer or limiter.
#[derive(Debug, Default)]
pub(super) struct Flows {
    policies: ByPolicy<Handles>,
}

/// The handles of one policy.
#[derive(Debug)]
struct Handles {
    passed: Counter,
    refunded: Counter,
    allowed: Counter,
    refused: Counter,
    waited: Histogram,
    cuts: Counter,
}

impl Handles {
    fn of(policy: &PolicyName) -> Self {
        let name = || Label::new("policy", policy.as_str().to_owned());
        let labels = |label| vec![name(), Label::from(label)];
        Self {
            passed: FLOW_UNITS.counter_of(labels(&("kind", "passed"))),
            refunded: FLOW_UNITS.counter_of(labels(&("kind", "refunded"))),
            allowed: FLOW_PORTIONS.counter_of(labels(&("verdict", "allowed"))),
            refused: FLOW_PORTIONS.counter_of(labels(&("verdict", "refused"))),
            waited: FLOW_WAIT_SECONDS.histogram_of(vec![name()]),
            cuts: FLOW_CUTS.counter_of(vec![name()]),
        }
    }
}

impl Flows {
    fn with_policy(&self, policy: &PolicyName, count: impl FnOnce(&Handles)) {
        self.policies.with(policy, || Handles::of(policy), count);
    }
}

impl ObserveFlows for Flows {
    fn decided(&self, policy: &PolicyName, is_allowed: bool) {
        self.with_policy(policy, |handles| {
            let counter = if is_allowed { &handles.allowed } else { &handles.refused };
            counter.increment(1);
        });
    }

    fn closed(&self, policy: &PolicyName, passed: u64, refunded: u64) {
        self.with_policy(policy, |handles| {
            handles.passed.increment(passed);
            handles.refunded.increment(refunded);
        });
    }

    fn waited(&self, policy: &PolicyName, time: Duration) {
        self.with_policy(policy, |handles| handles.waited.record(time));
    }

    fn cut(&self, policy: &PolicyName) {
        self.with_policy(policy, |handles| handles.cuts.increment(1));
    }
}
