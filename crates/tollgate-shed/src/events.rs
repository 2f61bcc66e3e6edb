//! Metrics of a shedder, and log lines whose rate no flood exceeds.
//!
//! Series are registered with their first event and kept, because looking one up costs more than counting.
//! docs/metrics.md of `tollgate` lists them.

#![cfg_attr(
    not(feature = "metrics"),
    allow(unused_variables, clippy::unused_self, reason = "nothing is counted without the feature")
)]

#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "metrics")]
use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use tollgate::policy::PolicyName;

use crate::shedder::Class;

#[derive(Debug)]
pub(crate) struct Metrics {
    #[cfg(feature = "metrics")]
    name: PolicyName,
    /// Offered and shed, by class.
    #[cfg(feature = "metrics")]
    requests: OnceLock<[[Counter; 4]; 2]>,
    /// Level and utilization, which only a worker shedder has.
    #[cfg(feature = "metrics")]
    levels: OnceLock<[Gauge; 2]>,
}

impl Metrics {
    pub(crate) fn new(name: &PolicyName) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            name: name.clone(),
            #[cfg(feature = "metrics")]
            requests: OnceLock::new(),
            #[cfg(feature = "metrics")]
            levels: OnceLock::new(),
        }
    }

    pub(crate) fn offered(&self, class: Class) {
        #[cfg(feature = "metrics")]
        self.requests()[0][class as usize].increment(1);
    }

    pub(crate) fn shed(&self, class: Class) {
        #[cfg(feature = "metrics")]
        self.requests()[1][class as usize].increment(1);
    }

    /// `utilization` is NaN if it is unknown.
    pub(crate) fn level(&self, level: f64, utilization: f64) {
        #[cfg(feature = "metrics")]
        {
            let [shown_level, shown_utilization] = self.levels();
            shown_level.set(level);
            if !utilization.is_nan() {
                shown_utilization.set(utilization);
            }
        }
    }
}

#[cfg(feature = "metrics")]
impl Metrics {
    fn requests(&self) -> &[[Counter; 4]; 2] {
        let series = [
            ("tollgate_shed_offered_total", "Requests that came to a shedder, by their class."),
            ("tollgate_shed_total", "Requests that a shedder shed, by their class."),
        ];
        self.requests.get_or_init(|| {
            series.map(|(metric, text)| {
                describe_counter!(metric, Unit::Count, text);
                [Class::Critical, Class::Write, Class::Read, Class::Test]
                    .map(|class| counter!(metric, "policy" => self.name.as_str().to_owned(), "class" => class.as_str()))
            })
        })
    }

    fn levels(&self) -> &[Gauge; 2] {
        let series = [
            ("tollgate_shed_level", "How far shedding by a worker shedder has come, from 0 to 1."),
            (
                "tollgate_shed_utilization",
                "How much is in progress by the last sample of a worker shedder, where 1 is full.",
            ),
        ];
        self.levels.get_or_init(|| {
            series.map(|(metric, text)| {
                describe_gauge!(metric, Unit::Count, text);
                gauge!(metric, "policy" => self.name.as_str().to_owned())
            })
        })
    }
}

/// Several layers may set the gauges: they show the last value, and 0 when a layer is dropped.
#[cfg(feature = "metrics")]
impl Drop for Metrics {
    fn drop(&mut self) {
        self.levels.get().into_iter().flatten().for_each(|shown| shown.set(0.0));
    }
}

#[derive(Debug)]
pub(crate) struct Lines {
    period: Duration,
    last: Mutex<Option<(Instant, u64)>>,
}

impl Lines {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, last: Mutex::new(None) }
    }

    pub(crate) fn log(&self, line: impl FnOnce(Option<u64>)) {
        if let Some(more) = self.note(Instant::now()) {
            line((more > 0).then_some(more));
        }
    }

    fn note(&self, now: Instant) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *last {
            Some((at, left_out)) if now.saturating_duration_since(*at) < self.period => {
                *left_out += 1;
                None
            }
            last => Some(last.replace((now, 0)).map_or(0, |(_, left_out)| left_out)),
        }
    }
}
