//! Concurrency limits whose counters are on several primaries.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use http::{Request, Response};
use tokio::time::sleep;
use tollgate::body::ResponseBody;
use tollgate::{Decision, Outcome, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{Cluster, PATIENCE};

const LIFE: Duration = Duration::from_secs(3);

/// The headers that policies have their keys from, so that their counters are in slots of their own.
const HEADERS: [&str; 6] = ["x-a", "x-b", "x-c", "x-d", "x-e", "x-f"];

async fn send(layer: &RateLimitLayer) -> Response<ResponseBody<String>> {
    let service = layer
        .clone()
        .expose_decisions()
        .layer(service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new("hello".to_owned()))));
    let request = HEADERS.iter().fold(Request::get("/"), |request, header| request.header(*header, *header));
    service.oneshot(request.body(String::new()).expect("a request")).await.expect("a response")
}

/// What is left of each policy once a response is dropped, and whether it was admitted.
async fn left(layer: &RateLimitLayer) -> (Vec<u64>, bool) {
    let response = send(layer).await;
    let decision: &Decision = response.extensions().get().expect("a decision");
    (decision.outcomes().iter().map(Outcome::remaining).collect(), decision.is_allowed())
}

#[tokio::test]
async fn slots_on_several_primaries_are_taken_together_renewed_and_released() {
    let cluster = Cluster::start();
    let policies = HEADERS.map(|header| {
        let quota = Quota::concurrency(if header == "x-d" { 3 } else { 5 }).slot_ttl(LIFE);
        Policy::new(header, quota).key(key::header(header).plain())
    });
    let layer = RateLimitLayer::composite(cluster.store(PATIENCE).await).policies(policies);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(send(&layer).await);
        assert_eq!(held.last().map(Response::status), Some(http::StatusCode::OK));
    }
    let places = cluster.primaries().iter().filter(|primary| !primary.keys().is_empty()).count();
    assert!(places > 1, "all counters are on one primary");
    for _ in 0..10 {
        assert_eq!(left(&layer).await, (vec![2, 2, 2, 0, 2, 2], false), "one is full, and the others are refunded");
    }
    sleep(2 * LIFE).await;
    assert_eq!(left(&layer).await, (vec![2, 2, 2, 0, 2, 2], false), "they are renewed");
    drop(held);
    let start = Instant::now();
    while left(&layer).await != (vec![4, 4, 4, 2, 4, 4], true) {
        assert!(start.elapsed() < LIFE / 3, "{:?}", left(&layer).await);
        sleep(Duration::from_millis(5)).await;
    }
}
