//! Counts what passes in flows, by policy: once for each portion, not for each unit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use arc_swap::ArcSwap;
use metrics::{Counter, Histogram, Label};

use super::names::{FLOW_CUTS, FLOW_PORTIONS, FLOW_UNITS, FLOW_WAIT_SECONDS};
use crate::core::PolicyName;
use crate::core::observer::ObserveFlows;

/// How many policies have handles that are kept; those of others are looked up each time.
const MOST_POLICIES: usize = 1_024;

/// The flows of a layer or limiter.
#[derive(Debug, Default)]
pub(super) struct Flows {
    policies: ArcSwap<HashMap<PolicyName, Arc<Handles>, RandomState>>,
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
    /// Returns the handles of a policy, which are kept from the first time on.
    fn of(&self, policy: &PolicyName) -> Arc<Handles> {
        if let Some(handles) = self.policies.load().get(policy) {
            return Arc::clone(handles);
        }
        let handles = Arc::new(Handles::of(policy));
        if self.policies.load().len() < MOST_POLICIES {
            self.policies.rcu(|policies| {
                let mut policies = HashMap::clone(policies);
                policies.entry(policy.clone()).or_insert_with(|| Arc::clone(&handles));
                policies
            });
        }
        // Handles of the same names count together.
        handles
    }
}

impl ObserveFlows for Flows {
    fn decided(&self, policy: &PolicyName, is_allowed: bool) {
        let handles = self.of(policy);
        let counter = if is_allowed { &handles.allowed } else { &handles.refused };
        counter.increment(1);
    }

    fn closed(&self, policy: &PolicyName, passed: u64, refunded: u64) {
        let handles = self.of(policy);
        handles.passed.increment(passed);
        handles.refunded.increment(refunded);
    }

    fn waited(&self, policy: &PolicyName, time: Duration) {
        self.of(policy).waited.record(time);
    }

    fn cut(&self, policy: &PolicyName) {
        self.of(policy).cuts.increment(1);
    }
}
