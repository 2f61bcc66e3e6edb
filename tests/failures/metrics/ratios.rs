//! What a ratio store reports: its reports, what it knows, and what it drops.

use metrics_util::debugging::DebugValue;
use tokio::time::sleep;

use super::watch::Watch;
use crate::ratios::{Switch, TICK, counter, load};

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

fn is_about(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= expected * 0.1
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
    assert!(is_about(of("reports_total{result=replied}"), 10.0), "{}", of("reports_total{result=replied}"));
    assert!(of("reports_total{result=failed}") == 0.0);
    assert!(is_about(of("live"), 1.0));
    // The calm tenant is not reported any more.
    assert!(is_about(of("counters"), 2.0), "{}", of("counters"));
    let highest = of("highest{policy=tenant}");
    assert!(is_about(highest, 0.75), "{highest}");
    // It is offered what the tenant passes.
    assert!(of("highest{policy=all}") < 0.1, "{}", of("highest{policy=all}"));
    #[allow(clippy::cast_precision_loss, reason = "a test counts little")]
    let refused = refused as f64;
    let (tenant, all) = (of("dropped_units_total{policy=tenant}"), of("dropped_units_total{policy=all}"));
    assert!(is_about(tenant, 3_000.0), "{tenant}");
    assert!((tenant + all - refused).abs() < 0.5, "{tenant} and {all} of {refused}");
}

#[tokio::test]
async fn what_is_not_known_any_more_is_shown_as_0() {
    let (watch, tally) = (Watch::start(), Switch::new());
    let (store, all) = (tally.store(), [counter("all", "all")]);
    load(&store, &all, 400, 5).await;
    tally.set_off(true);
    load(&store, &all, 400, 2).await;
    let of = seen(&watch);
    assert!(is_about(of("live"), 1.0) && is_about(of("highest{policy=all}"), 0.75), "the last ratio holds");
    assert!(of("reports_total{result=failed}") > 0.0);
    load(&store, &all, 400, 5).await;
    drop(seen(&watch));
    let refused = load(&store, &all, 400, 4).await;
    let of = seen(&watch);
    assert!(of("live") == 0.0 && of("highest{policy=all}") == 0.0);
    // Four ticks, which may have five of the moments at which this process reports.
    let failed = of("reports_total{result=failed}");
    assert!((4.0..=5.0).contains(&failed), "{failed}");
    // Refused by the share of this process, not dropped by a ratio.
    assert!(refused > 1_000 && of("dropped_units_total{policy=all}") == 0.0);
}

#[tokio::test]
async fn the_gauges_of_a_store_that_is_dropped_are_0() {
    let watch = Watch::start();
    let store = Switch::new().store();
    load(&store, &[counter("all", "all")], 400, 5).await;
    drop(store);
    let of = seen(&watch);
    assert!(["live", "counters", "highest{policy=all}"].iter().all(|gauge| of(gauge) == 0.0));
    sleep(TICK * 2).await;
    assert!(seen(&watch)("reports_total{result=replied}") == 0.0);
}
