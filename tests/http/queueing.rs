//! A leaky bucket that queues, in front of a service, on tokio's paused time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, sleep, timeout};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitLayer};
use tower::limit::ConcurrencyLimit;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::time::memory;

type Body = Full<Bytes>;
type Calls = Arc<Mutex<Vec<Duration>>>;
type Service = BoxCloneService<Request<Body>, Response<Body>, Infallible>;

/// The timer's grain.
const GRAIN: Duration = Duration::from_millis(2);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A layer of 10 slots a second with a queue, on the runtime's time, which starts now.
fn queue(places: u64) -> RateLimitLayer {
    let quota = Quota::leaky_bucket(10, Duration::from_secs(1)).queue(places);
    RateLimitLayer::new(memory(&ManualClock::paused()), Policy::new("queue", quota))
}

/// A service that notes when it is called, and takes `work` for its answer.
fn noting(work: Duration) -> (Service, Calls) {
    let calls = Calls::default();
    let (noted, start) = (Arc::clone(&calls), Instant::now());
    let service = service_fn(move |_: Request<Body>| {
        noted.lock().expect("no test panics while it notes").push(start.elapsed());
        async move {
            sleep(work).await;
            Ok(Response::new(Body::default()))
        }
    });
    (BoxCloneService::new(service), calls)
}

fn request() -> Request<Body> {
    Request::new(Body::default())
}

/// Each call stands at its multiple of `apart`, not before it and within the grain after it.
#[track_caller]
fn spaced(calls: &Calls, expected: usize, apart: Duration) {
    let calls = calls.lock().expect("no service panics while it notes");
    assert_eq!(calls.len(), expected, "{calls:?}");
    for (place, at) in (0_u32..).zip(calls.iter()) {
        let slot = apart * place;
        assert!(*at >= slot && *at <= slot + GRAIN, "call {place} at {at:?}, its slot at {slot:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_reach_the_inner_service_one_slot_apart_and_the_rest_is_refused() {
    let (inner, calls) = noting(ms(0));
    let service = queue(5).layer(inner);
    let answers = join_all((0..9).map(|_| service.clone().oneshot(request()))).await;
    let refused =
        answers.into_iter().filter(|answer| answer.as_ref().unwrap().status() == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.count(), 3);
    spaced(&calls, 6, ms(100));
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_told_when_a_place_in_the_queue_is_free() {
    let (inner, _) = noting(ms(0));
    let service = queue(12).layer(inner);
    let waiting: Vec<_> = (0..13).map(|_| tokio::spawn(service.clone().oneshot(request()))).collect();
    sleep(ms(1)).await;
    let refused = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(refused.headers()["ratelimit"], r#""queue";r=0;t=1"#);
    for answer in waiting {
        assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_turn_holds_no_readiness_of_the_inner_service() {
    let (inner, _) = noting(ms(0));
    let limited = ConcurrencyLimit::new(inner, 1);
    let service = queue(5).layer(limited.clone());
    service.clone().oneshot(request()).await.unwrap();
    let waiting = tokio::spawn(service.clone().oneshot(request()));
    sleep(ms(10)).await;
    let other = timeout(ms(1), limited.oneshot(request())).await;
    assert!(other.is_ok(), "the permit is free while the request waits");
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_in_the_queue_gives_its_slot_back_if_it_is_the_last() {
    let (inner, calls) = noting(ms(0));
    let service = queue(5).layer(inner);
    service.clone().oneshot(request()).await.unwrap();
    let dropped = timeout(ms(20), service.clone().oneshot(request())).await;
    assert!(dropped.is_err(), "it waits for the slot at 100 ms");
    service.clone().oneshot(request()).await.unwrap();
    spaced(&calls, 2, ms(100));
}
