//! What a recorder was told, by metric and labels.

use std::collections::BTreeMap;

use metrics::LocalRecorderGuard;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use metrics_util::{CompositeKey, MetricKind};

/// The recorder of a test's thread.
pub(crate) struct Watch {
    snapshotter: Snapshotter,
    _installed: LocalRecorderGuard<'static>,
}

/// A metric with labels: `name{key=value,...}`.
pub(crate) type Series = String;

impl Watch {
    pub(crate) fn start() -> Self {
        let recorder: &'static DebuggingRecorder = Box::leak(Box::new(DebuggingRecorder::new()));
        Self { snapshotter: recorder.snapshotter(), _installed: metrics::set_default_local_recorder(recorder) }
    }

    /// By how much each metric has changed since the last look: a histogram, by how many values.
    pub(crate) fn changes(&self) -> BTreeMap<Series, i64> {
        let all = self.all().into_iter().map(|(series, _, _, value)| match value {
            DebugValue::Counter(count) => (series, i64::try_from(count).expect("a test counts little")),
            #[allow(clippy::cast_possible_truncation, reason = "a small whole number")]
            DebugValue::Gauge(change) => (series, change.0 as i64),
            DebugValue::Histogram(values) => (series, i64::try_from(values.len()).expect("a test counts little")),
        });
        all.filter(|(_, change)| *change != 0).collect()
    }

    /// Checks what has changed since the last look, and nothing else has; how often decisions were
    /// timed is checked against their number.
    #[track_caller]
    pub(crate) fn saw(&self, what: &str, expected: &[(&str, i64)]) {
        let (times, counts): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.changes().into_iter().partition(|(series, _)| series.starts_with("tollgate_decision_seconds"));
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(series, change)| (format!("tollgate_{series}"), *change)).collect();
        assert_eq!(counts, expected, "{what}");
        let samples: i64 = times.values().sum();
        let decided = |series: &str| {
            let untimed = ["source=none,verdict=allowed", "verdict=forbidden", "verdict=ambiguous", "verdict=rejected"];
            series.starts_with("tollgate_decisions_total") && !untimed.iter().any(|labels| series.contains(labels))
        };
        let decisions: i64 = counts.iter().filter(|(series, _)| decided(series)).map(|(_, count)| count).sum();
        assert_eq!(samples, decisions, "{what}: every decision is timed once");
    }

    /// The values of a histogram since the last look.
    pub(crate) fn values(&self, series: &str) -> Vec<f64> {
        let found = self.all().into_iter().find(|(found, ..)| *found == format!("tollgate_{series}"));
        match found {
            Some((_, _, _, DebugValue::Histogram(values))) => values.into_iter().map(|value| value.0).collect(),
            other => panic!("{series}: {other:?}"),
        }
    }

    /// Each metric with labels, its kind, and how it is described: unit and text.
    pub(crate) fn all(&self) -> Vec<(Series, MetricKind, String, DebugValue)> {
        let told = self.snapshotter.snapshot().into_vec().into_iter();
        told.map(|(key, unit, text, value)| {
            let unit = unit.expect("every metric has a unit").as_str();
            (series(&key), key.kind(), format!("{unit}: {}", text.expect("every metric is described")), value)
        })
        .collect()
    }
}

fn series(key: &CompositeKey) -> Series {
    let labels: Vec<String> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    if labels.is_empty() {
        key.key().name().to_owned()
    } else {
        format!("{}{{{}}}", key.key().name(), labels.join(","))
    }
}
