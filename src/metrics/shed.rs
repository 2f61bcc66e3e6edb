//! Counts the requests of each class that come to a shedder and that it sheds, and shows how far shedding has come.
//!
//! The name of the shedder is the label `policy`. Handles are registered with its first request, those of all classes
//! together, so that a class which was never shed is seen at 0.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Label};

use super::names::{Metric, SHED, SHED_LEVEL, SHED_OFFERED, SHED_UTILIZATION};
use crate::core::PolicyName;
use crate::core::observer::ObserveShed;

/// The classes of requests.
const CLASSES: [&str; 4] = ["critical", "write", "read", "test"];

/// What a shedder does.
#[derive(Debug)]
pub(super) struct Shedding {
    name: PolicyName,
    offered: OnceLock<[Counter; 4]>,
    shed: OnceLock<[Counter; 4]>,
    gauges: OnceLock<Gauges>,
}

/// What only a worker shedder has.
#[derive(Debug)]
struct Gauges {
    level: Gauge,
    utilization: Gauge,
}

impl Shedding {
    pub(super) fn new(name: &PolicyName) -> Self {
        Self { name: name.clone(), offered: OnceLock::new(), shed: OnceLock::new(), gauges: OnceLock::new() }
    }

    fn policy(&self) -> Label {
        Label::new("policy", self.name.as_str().to_owned())
    }

    /// Returns the counters of all classes.
    fn by_class(&self, metric: &Metric) -> [Counter; 4] {
        CLASSES.map(|class| metric.counter_of(vec![self.policy(), Label::from_static_parts("class", class)]))
    }

    /// Counts a request of a class.
    fn count(&self, handles: &OnceLock<[Counter; 4]>, metric: &Metric, class: &'static str) {
        let counters = handles.get_or_init(|| self.by_class(metric));
        if let Some(place) = CLASSES.iter().position(|known| *known == class) {
            counters[place].increment(1);
        }
    }
}

impl ObserveShed for Shedding {
    fn offered(&self, class: &'static str) {
        self.count(&self.offered, &SHED_OFFERED, class);
        // Registered too: it is seen at 0.
        self.shed.get_or_init(|| self.by_class(&SHED));
    }

    fn shed(&self, class: &'static str) {
        self.count(&self.shed, &SHED, class);
    }

    fn level(&self, level: f64, utilization: f64) {
        let gauges = self.gauges.get_or_init(|| Gauges {
            level: SHED_LEVEL.gauge_of(vec![self.policy()]),
            utilization: SHED_UTILIZATION.gauge_of(vec![self.policy()]),
        });
        gauges.level.set(level);
        if !utilization.is_nan() {
            gauges.utilization.set(utilization);
        }
    }
}

impl Drop for Shedding {
    fn drop(&mut self) {
        if let Some(gauges) = self.gauges.get() {
            gauges.level.set(0.0);
            gauges.utilization.set(0.0);
        }
    }
}
