//! What a ratio store reports: its reports, what it knows, and what it drops.

use metrics_util::debugging::DebugValue;

use super::watch::Watch;
use crate::ratios::{Switch, counter, load};

/// What has changed since the last look: counters by how much, gauges what they were set to.
fn seen(watch: &Watch) -> impl Fn(&str) -> f64 + use<> {
    let all = watch.all();
    move |name| {
        let (.., value) = all.iter().find(|(series, ..)| *series == format!("tollgate_ratio_{name}")).expect(name);
        match value {
            DebugValue::Counter(count) => f64::from(u32::try_from(*count).expect("a test counts little")),
            DebugValue::Gauge(value) => value.0,
            DebugValue::Histogram(_) => panic!("{name} is a histogram"),
        }
    }
}

#[track_caller]
fn assert_about(of: &impl Fn(&str) -> f64, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        let value = of(name);
        assert!((value - expected).abs() <= expected * 0.1, "{name}: {value}, not {expected}");
    }
}

#[tokio::test]
async fn reports_ratios_and_drops_are_shown() {
    let (watch, tally) = (Watch::start(), Switch::new());
    let store = tally.store();
    load(&store, &[counter("tenant", "calm"), counter("all", "all")], 100, 1).await;
    load(&store, &[counter("tenant", "busy"), counter("all", "all")], 400, 5).await;
    drop(seen(&watch));
    let refused = load(&store, &[counter("tenant", "busy"), counter("all", "all")], 400, 10).await;
    let of = seen(&watch);
    assert_about(&of, &[("reports_total{result=replied}", 10.0), ("reports_total{result=failed}", 0.0), ("live", 1.0)]);
    // The calm tenant is not reported any more.
    assert_about(&of, &[("counters", 2.0), ("highest{policy=tenant}", 0.75)]);
    // It is offered what the tenant passes.
    assert!(of("highest{policy=all}") < 0.1, "{}", of("highest{policy=all}"));
    assert_about(&of, &[("dropped_units_total{policy=tenant}", 3_000.0)]);
    let dropped = of("dropped_units_total{policy=tenant}") + of("dropped_units_total{policy=all}");
    assert_eq!(format!("{dropped}"), refused.to_string());
}

#[tokio::test]
async fn what_is_not_known_any_more_is_shown_as_0() {
    let (watch, tally) = (Watch::start(), Switch::new());
    let (store, all) = (tally.store(), [counter("all", "all")]);
    load(&store, &all, 400, 5).await;
    tally.set_off(true);
    load(&store, &all, 400, 2).await;
    let of = seen(&watch);
    assert_about(&of, &[("live", 1.0), ("highest{policy=all}", 0.75)]);
    assert!(of("reports_total{result=failed}") > 0.0, "the last ratio holds");
    load(&store, &all, 400, 5).await;
    drop(seen(&watch));
    let refused = load(&store, &all, 400, 4).await;
    let of = seen(&watch);
    // Four ticks, which may have five of the moments at which this process reports.
    assert!((4.0..=5.0).contains(&of("reports_total{result=failed}")), "{}", of("reports_total{result=failed}"));
    assert!(refused > 1_000, "by the share of this process");
    assert_about(&of, &[("live", 0.0), ("highest{policy=all}", 0.0), ("dropped_units_total{policy=all}", 0.0)]);

    tally.set_off(false);
    load(&store, &all, 400, 5).await;
    drop(store);
    assert_about(&seen(&watch), &[("live", 0.0), ("counters", 0.0), ("highest{policy=all}", 0.0)]);
}
