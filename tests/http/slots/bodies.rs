//! A body holds the slots of its request until it ends, fails or is dropped.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use tokio::time::sleep;
use tollgate::policy::Count;
use tollgate::store::{Ask, Check, MaybeFuture, Store, StoreDecision};
use tollgate::{Error, MemoryStore, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{TWO, around, data, empty, feeding, full, left, next, send, send_fed, streams};
use crate::support::doubles::passes_on;

#[test]
fn a_slot_is_held_until_the_body_has_ended() {
    let layer = streams(TWO);
    let (service, mut senders) = feeding(&layer);
    let (response, sender) = send_fed(&service, &mut senders);
    let mut body = Box::pin(response.into_body());
    assert_eq!(left(&layer), 1);
    sender.unbounded_send(Ok(data("hello"))).expect("it is read");
    assert!(matches!(next(&mut body), Some(Some(Ok(_)))));
    assert!(next(&mut body).is_none(), "it goes on");
    assert_eq!(left(&layer), 1);
    drop(sender);
    assert!(matches!(next(&mut body), Some(None)));
    assert_eq!(left(&layer), 2);
    drop(body);
    assert_eq!(left(&layer), 2, "released once");
}

#[test]
fn more_than_the_limit_are_refused_until_one_has_ended() {
    let layer = streams(TWO);
    let (service, mut senders) = feeding(&layer);
    let (first, sender) = send_fed(&service, &mut senders);
    let (_second, _sender) = send_fed(&service, &mut senders);
    assert_eq!(send(&service).status(), StatusCode::TOO_MANY_REQUESTS);
    drop(sender);
    assert!(matches!(next(&mut Box::pin(first.into_body())), Some(None)));
    let (_third, _sender) = send_fed(&service, &mut senders);
    assert_eq!(send(&service).status(), StatusCode::TOO_MANY_REQUESTS);
}

#[test]
fn a_body_that_fails_or_is_dropped_unread_releases_its_slot() {
    let layer = streams(TWO);
    let (service, mut senders) = feeding(&layer);
    let (response, sender) = send_fed(&service, &mut senders);
    let mut body = Box::pin(response.into_body());
    sender.unbounded_send(Err(io::Error::other("it broke"))).expect("it is read");
    assert!(matches!(next(&mut body), Some(Some(Err(_)))));
    assert_eq!(left(&layer), 2, "the body is still there");

    let (response, _sender) = send_fed(&service, &mut senders);
    assert_eq!(left(&layer), 1);
    drop(response);
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_body_that_has_ended_holds_nothing() {
    let layer = streams(TWO);
    let response = send(&around(&layer, |_| Response::new(empty())));
    assert_eq!((response.status(), left(&layer)), (StatusCode::OK, 2));

    let response = send(&around(&layer, |_| Response::new(full("hello"))));
    assert_eq!(left(&layer), 1);
    // A body that reports its end is not polled again.
    let mut body = Box::pin(response.into_body());
    assert!(matches!(next(&mut body), Some(Some(Ok(_)))));
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_request_takes_as_many_slots_as_it_costs() {
    let layer =
        RateLimitLayer::new(MemoryStore::new(), Policy::new("streams", Quota::concurrency(5)).cost(3).refund_dropped());
    let (service, mut senders) = feeding(&layer);
    let (response, _sender) = send_fed(&service, &mut senders);
    assert_eq!(left(&layer), 2);
    assert_eq!(send(&service).status(), StatusCode::TOO_MANY_REQUESTS);
    drop(response);
    assert_eq!(left(&layer), 5);
}

#[test]
fn a_service_that_fails_or_is_dropped_releases_the_slot() {
    let layer = streams(TWO);
    let failing = layer.layer(service_fn(async |_: Request<String>| Err::<Response<String>, _>("it failed")));
    failing.oneshot(Request::new(String::new())).now_or_never().expect("at once").expect_err("it fails");
    assert_eq!(left(&layer), 2);

    let endless =
        layer.layer(service_fn(async |_: Request<String>| pending::<Result<Response<String>, Infallible>>().await));
    let mut calling = Box::pin(endless.oneshot(Request::new(String::new())));
    assert!(calling.as_mut().now_or_never().is_none());
    assert_eq!(left(&layer), 1);
    drop(calling);
    assert_eq!(left(&layer), 2);
}

#[tokio::test]
async fn a_handler_that_panics_releases_the_slot() {
    let layer = streams(TWO);
    let panicking = layer.layer(service_fn(async |request: Request<String>| {
        assert!(request.uri().path() == "/never", "it panics, as the test wants");
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let joined = tokio::spawn(panicking.oneshot(Request::new(String::new()))).await;
    assert!(joined.is_err_and(|error| error.is_panic()));
    assert_eq!(left(&layer), 2);
}

#[test]
fn a_call_holds_its_slot_until_its_trailers_have_been_sent() {
    let policies = [Policy::new("streams", TWO), Policy::new("failures", Quota::per_hour(5)).count(Count::failures())];
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies);
    let (service, mut senders) = feeding(&layer);
    let request = Request::post("/").version(Version::HTTP_2).header("te", "trailers");
    let request = request.header("content-type", "application/grpc").body(String::new()).expect("a request");
    let response = service.oneshot(request).now_or_never().expect("at once").expect("a response");
    let sender = senders.try_recv().expect("the service was called");
    let mut body = Box::pin(response.into_body());
    sender.unbounded_send(Ok(data("message"))).expect("it is read");
    assert!(matches!(next(&mut body), Some(Some(Ok(_)))));
    assert_eq!(left(&layer), 1);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().expect("a value"));
    sender.unbounded_send(Ok(Frame::<Bytes>::trailers(trailers))).expect("it is read");
    drop(sender);
    assert!(next(&mut body).flatten().is_some_and(|frame| frame.expect("trailers").is_trailers()));
    assert!(matches!(next(&mut body), Some(None)));
    assert_eq!(left(&layer), 2);
}

/// Decides after a while.
struct Slow(MemoryStore);

impl Store for Slow {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let (store, checks) = (self.0.clone(), checks.to_vec());
        MaybeFuture::pending(async move {
            sleep(Duration::from_millis(10)).await;
            store.decide(&checks, ask).wait().await
        })
    }

    passes_on!(0: settle, adjust);
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_while_the_store_decides_leave_no_slots_behind() {
    let store = MemoryStore::new();
    let layer = RateLimitLayer::new(Slow(store.clone()), Policy::new("streams", Quota::concurrency(1_000)));
    let observer = RateLimitLayer::new(store, Policy::new("streams", Quota::concurrency(1_000)));
    let service = around(&layer, |_| Response::new(full("hello")));
    let mut leaving: Vec<_> =
        (0..500).map(|_| Box::pin(service.clone().oneshot(Request::new(String::new())))).collect();
    for request in &mut leaving {
        assert!(request.as_mut().now_or_never().is_none());
    }
    // Half of them leave at once, half when the store has decided but before they are polled again.
    leaving.truncate(250);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(left(&observer), 750, "they were decided without being polled");
    drop(leaving);
    assert_eq!(left(&observer), 1_000);
}
