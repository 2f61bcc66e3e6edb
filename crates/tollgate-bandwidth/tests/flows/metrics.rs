//! What passes in flows.

use std::time::Duration;

use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_bandwidth::Flow;

use crate::support::watch::Watch;

#[tokio::test]
async fn units_portions_and_waits_are_counted_by_policy() {
    let watch = Watch::start();
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    let limiter = Limiter::new(store, [Rule::new("bytes", Quota::fixed_window(100, Duration::from_secs(60)))]);
    let flow = Flow::of(&limiter, &Key::new("user", "ada")).await.expect("memory never fails");
    for _ in 0..100 {
        flow.check(1).await.expect("the window has 100");
    }
    flow.check(1).await.expect_err("and no more");
    let changes = watch.changes();
    let of = |series: &str| changes.get(&format!("tollgate_flow_{series}")).copied().unwrap_or_default();
    assert_eq!(of("units_total{policy=bytes,kind=passed}"), 100);
    assert_eq!(of("units_total{policy=bytes,kind=refunded}"), 0);
    assert!(of("portions_total{policy=bytes,verdict=allowed}") > 0);
    assert_eq!(of("portions_total{policy=bytes,verdict=refused}"), 0, "the last portion said that it was the last one");
    flow.acquire(1).await.expect("the next window");
    assert!(watch.values("flow_wait_seconds{policy=bytes}").iter().any(|seconds| (50.0..=66.0).contains(seconds)));
    drop(Flow::of(&limiter, &Key::new("user", "bob")).await.expect("memory never fails"));
    assert_eq!(watch.changes().get("tollgate_flow_units_total{policy=bytes,kind=refunded}"), Some(&1));
}
