//! What shedders report: each request by its class, and how far shedding has come.

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Request, Response};
use tollgate::test_util::ManualClock;
use tollgate::{MemoryStore, Quota};
use tollgate_shed::{FleetShedLayer, WorkerShedLayer};
use tollgate_test::send;
use tower::{Layer, ServiceExt, service_fn};

use super::watch::Watch;

#[tokio::test]
async fn a_fleet_shedder_counts_what_comes_and_what_it_sheds_by_class() {
    let watch = Watch::start();
    let layer = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(4), 0.5);
    let mut held = Vec::new();
    for method in [Method::GET, Method::POST, Method::GET, Method::POST, Method::POST] {
        let hello = service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned())));
        let request = Request::builder().method(method).body(String::new()).expect("a request");
        held.push(layer.layer(hello).oneshot(request).await.expect("a response"));
    }
    let changes = watch.changes();
    let of = |metric: &str, class: &str| {
        changes.get(&format!("tollgate_shed_{metric}total{{policy=fleet,class={class}}}")).copied().unwrap_or_default()
    };
    assert_eq!(["critical", "write", "read", "test"].map(|class| of("offered_", class)), [0, 3, 2, 0]);
    assert_eq!(["critical", "write", "read", "test"].map(|class| of("", class)), [0, 2, 1, 0]);
    assert_eq!(changes["tollgate_policy_denials_total{policy=fleet.others,mode=enforce}"], 3);
}

#[tokio::test]
async fn a_worker_shedder_shows_its_level_and_utilization_and_nothing_once_it_is_dropped() {
    for is_dropped in [false, true] {
        let (watch, clock) = (Watch::start(), ManualClock::new());
        let layer = WorkerShedLayer::measured("worker", || 3.0).clock(clock.clone());
        let request = |_| {
            clock.advance(Duration::from_secs(1));
            Request::new(String::new())
        };
        send(&layer, 121, request).await;
        let layer = (!is_dropped).then_some(layer);
        let changes = watch.changes();
        let of = |metric: &str| changes.get(&format!("tollgate_shed_{metric}")).copied().unwrap_or_default();
        assert_eq!(of("offered_total{policy=worker,class=read}"), 121);
        let shown = ["level", "utilization"].map(|gauge| of(&format!("{gauge}{{policy=worker}}")));
        assert_eq!(shown, if layer.is_some() { [1, 3] } else { [0, 0] });
    }
}
