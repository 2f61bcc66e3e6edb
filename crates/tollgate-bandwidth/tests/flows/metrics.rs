//! What passes in flows.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tollgate::{Key, Quota};
use tollgate_bandwidth::Flow;

use super::audit::flow;

/// By how much each metric has changed since the last look; of a histogram, the whole seconds that it was given.
fn changes(snapshotter: &Snapshotter) -> BTreeMap<String, u64> {
    let all = snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
        let labels: Vec<&str> = key.key().labels().skip(1).map(metrics::Label::value).collect();
        let value = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Gauge(value) => panic!("{value} of a gauge"),
            DebugValue::Histogram(values) => {
                values.into_iter().map(|value| Duration::from_secs_f64(value.0)).sum::<Duration>().as_secs()
            }
        };
        (format!("{} {}", key.key().name(), labels.concat()), value)
    });
    all.collect()
}

#[tokio::test(start_paused = true)]
async fn units_portions_and_waits_are_counted_by_policy() {
    let recorder: &'static DebuggingRecorder = Box::leak(Box::new(DebuggingRecorder::new()));
    let (snapshotter, _installed) = (recorder.snapshotter(), metrics::set_default_local_recorder(recorder));
    let (flow, limiter, _) = flow(Quota::fixed_window(100, Duration::from_secs(60))).await;
    for _ in 0..100 {
        flow.check(1).await.expect("the window has 100");
    }
    flow.check(1).await.expect_err("and no more");
    let of_100 = changes(&snapshotter);
    let of = |series: &str| of_100.get(&format!("tollgate_flow_{series}")).copied().unwrap_or_default();
    assert_eq!([of("units_total passed"), of("units_total refunded")], [100, 0], "{of_100:?}");
    assert!(of("portions_total allowed") > 0, "{of_100:?}");
    assert_eq!(of("portions_total denied"), 0, "the last portion said that it was the last one");
    flow.acquire(1).await.expect("the next window");
    let waited = changes(&snapshotter)["tollgate_flow_wait_seconds "];
    assert!((50..=66).contains(&waited), "{waited}");
    drop(Flow::of(&limiter, &Key::new("user", "bob")).await.expect("memory never fails"));
    assert_eq!(changes(&snapshotter).get("tollgate_flow_units_total refunded"), Some(&1));
}
