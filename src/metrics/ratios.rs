//! Counts the reports of ratio stores and what they drop, and shows their highest ratios.
//!
//! Gauges are set once in a tick, and to 0 when the store is dropped: of several stores in one process they show the one
//! that reported last.

use std::collections::HashMap;
use std::sync::OnceLock;

use metrics::{Counter, Gauge, Label};

use super::by_policy::ByPolicy;
use super::names::{RATIO_COUNTERS, RATIO_DROPPED_UNITS, RATIO_HIGHEST, RATIO_LIVE, RATIO_REPORTS};
use crate::core::PolicyName;
use crate::core::observer::ObserveRatios;

/// What a ratio store does.
#[derive(Debug, Default)]
pub(super) struct Ratios {
    handles: OnceLock<Handles>,
    policies: ByPolicy<OfPolicy>,
}

/// The handles of a store, registered with its first report.
#[derive(Debug)]
struct Handles {
    replied: Counter,
    failed: Counter,
    counters: Gauge,
    live: Gauge,
}

/// The handles of one policy, registered with the first report after its first check.
#[derive(Debug)]
struct OfPolicy {
    highest: Gauge,
    dropped: Counter,
}

impl Handles {
    fn new() -> Self {
        let reports = |result| RATIO_REPORTS.counter([("result", result)]);
        Self {
            replied: reports("replied"),
            failed: reports("failed"),
            counters: RATIO_COUNTERS.gauge(),
            live: RATIO_LIVE.gauge(),
        }
    }
}

impl OfPolicy {
    fn new(policy: &PolicyName) -> Self {
        let labels = || vec![Label::new("policy", policy.as_str().to_owned())];
        Self { highest: RATIO_HIGHEST.gauge_of(labels()), dropped: RATIO_DROPPED_UNITS.counter_of(labels()) }
    }
}

impl Ratios {
    fn with_policy(&self, policy: &PolicyName, count: impl FnOnce(&OfPolicy)) {
        self.policies.with(policy, || OfPolicy::new(policy), count);
    }
}

#[allow(clippy::cast_precision_loss, reason = "there are far fewer counters and processes")]
impl ObserveRatios for Ratios {
    fn reported(&self, counters: usize, is_replied: bool) {
        let handles = self.handles.get_or_init(Handles::new);
        let counter = if is_replied { &handles.replied } else { &handles.failed };
        counter.increment(1);
        handles.counters.set(counters as f64);
    }

    fn known(&self, live: u64, highest: &HashMap<PolicyName, f64>) {
        self.handles.get_or_init(Handles::new).live.set(live as f64);
        for (policy, handles) in &*self.policies.kept() {
            if !highest.contains_key(policy) {
                handles.highest.set(0.0);
            }
        }
        for (policy, ratio) in highest {
            self.with_policy(policy, |handles| handles.highest.set(*ratio));
        }
    }

    fn dropped(&self, policy: &PolicyName, units: u64) {
        self.with_policy(policy, |handles| handles.dropped.increment(units));
    }
}

impl Drop for Ratios {
    fn drop(&mut self) {
        if let Some(handles) = self.handles.get() {
            handles.counters.set(0.0);
            handles.live.set(0.0);
        }
        for handles in self.policies.kept().values() {
            handles.highest.set(0.0);
        }
    }
}
