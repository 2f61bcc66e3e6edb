//! A leaky bucket that queues, in front of a service, on tokio's paused time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use http::{Request, Response};
use tokio::time::{Instant, sleep, timeout};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitLayer};
use tower::limit::ConcurrencyLimit;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{Text, expect, request};
use crate::support::time::memory;

type Calls = Arc<Mutex<Vec<Duration>>>;
type Service = BoxCloneService<Request<String>, Response<Text>, Infallible>;

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

/// A service that notes when it is called.
fn noting() -> (Service, Calls) {
    let (calls, start) = (Calls::default(), Instant::now());
    let noted = Arc::clone(&calls);
    let service = service_fn(move |_: Request<String>| {
        noted.lock().expect("no test panics while it notes").push(start.elapsed());
        async { Ok(Response::new(Text::default())) }
    });
    (BoxCloneService::new(service), calls)
}

/// Each call stands at its multiple of 100 ms, not before it and within the grain after it.
#[track_caller]
fn spaced(calls: &Calls, expected: usize) {
    let calls = calls.lock().expect("no service panics while it notes");
    assert_eq!(calls.len(), expected, "{calls:?}");
    for (place, at) in (0..).zip(calls.iter()) {
        assert!((ms(100 * place)..=ms(100 * place) + GRAIN).contains(at), "call {place} at {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_reach_the_inner_service_one_slot_apart_and_the_rest_is_refused() {
    let (inner, calls) = noting();
    let service = queue(12).layer(inner);
    let responses = join_all((0..16).map(|_| service.clone().oneshot(request()))).await;
    let refused = responses.into_iter().map(Result::unwrap).filter(|response| response.status() == 429);
    // When there is a place in the queue.
    let told =
        refused.map(|response| expect(response.headers(), &[("retry-after", "1"), ("ratelimit", "\"queue\";r=0;t=1")]));
    assert_eq!(told.count(), 3);
    spaced(&calls, 13);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_turn_holds_no_readiness_of_the_inner_service() {
    let limited = ConcurrencyLimit::new(noting().0, 1);
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
    let (inner, calls) = noting();
    let service = queue(5).layer(inner);
    service.clone().oneshot(request()).await.unwrap();
    let dropped = timeout(ms(20), service.clone().oneshot(request())).await;
    assert!(dropped.is_err(), "it waits for the slot at 100 ms");
    service.clone().oneshot(request()).await.unwrap();
    spaced(&calls, 2);
}
