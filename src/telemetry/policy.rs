//! What a policy reports where it is at hand.

#[cfg(feature = "metrics")]
use super::by_policy::PolicySeries;
use crate::core::PolicyName;

/// What is reported where a policy of a layer, or a shedder, is at hand: it needs no lookup by the name.
#[derive(Debug)]
pub(crate) struct PolicyTelemetry {
    #[cfg(feature = "metrics")]
    series: PolicySeries,
}

/// The reason for which a policy did not count a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Skipped {
    /// The request lacks the key, or it could not be looked up.
    KeyMissing,
    /// The client is on the allow list.
    List,
    /// Its methods, routes or closure leave the request out, or it is a CORS preflight.
    Scope,
}

impl PolicyTelemetry {
    pub(crate) fn new(name: &PolicyName) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            series: PolicySeries::new(name),
        }
    }

    /// The policy did not count a request.
    pub(crate) fn skipped(&self, reason: Skipped) {
        #[cfg(feature = "metrics")]
        self.series.skipped()[reason as usize].increment(1);
    }

    /// A request of a class, by its place, came to the shedder.
    pub(crate) fn offered(&self, class: usize) {
        #[cfg(feature = "metrics")]
        self.series.shedding()[0][class].increment(1);
    }

    /// It was shed.
    pub(crate) fn shed(&self, class: usize) {
        #[cfg(feature = "metrics")]
        self.series.shedding()[1][class].increment(1);
    }

    /// The level of shedding after a sample of the utilization, which is NaN if it is not known.
    pub(crate) fn level(&self, level: f64, utilization: f64) {
        #[cfg(feature = "metrics")]
        {
            let [shown_level, shown_utilization] = self.series.levels();
            shown_level.set(level);
            if !utilization.is_nan() {
                shown_utilization.set(utilization);
            }
        }
    }
}
