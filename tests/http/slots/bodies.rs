//! A body holds the slots of its request until it ends, fails or is dropped.

use std::convert::Infallible;
use std::future::pending;
use std::io;

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use tollgate::policy::Count;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{TWO, around, data, empty, feeding, full, left, next, send, send_fed, streams};
use crate::rig::{call, request};

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
fn a_body_that_fails_is_dropped_unread_or_has_ended_holds_nothing() {
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

    let response = send(&around(&layer, |_| Response::new(empty())));
    assert_eq!((response.status(), left(&layer)), (StatusCode::OK, 2));
    let response = send(&around(&layer, |_| Response::new(full("hello"))));
    assert_eq!(left(&layer), 1);
    // A body that reports its end is not polled again.
    let mut body = Box::pin(response.into_body());
    assert!(matches!(next(&mut body), Some(Some(Ok(_)))));
    assert_eq!(left(&layer), 2);
}

#[tokio::test]
async fn a_service_that_fails_panics_or_is_dropped_releases_all_slots_that_the_request_cost() {
    let layer =
        RateLimitLayer::new(MemoryStore::new(), Policy::new("streams", Quota::concurrency(5)).cost(3).refund_dropped());
    let failing = layer.layer(service_fn(async |_: Request<String>| Err::<Response<String>, _>("it failed")));
    failing.oneshot(request()).await.expect_err("it fails");
    assert_eq!(left(&layer), 5);

    let panicking = layer.layer(service_fn(async |request: Request<String>| {
        assert!(request.uri().path() == "/never", "it panics, as the test wants");
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    assert!(tokio::spawn(panicking.oneshot(request())).await.is_err_and(|error| error.is_panic()));
    assert_eq!(left(&layer), 5);

    let endless = service_fn(async |_: Request<String>| pending::<Result<Response<String>, Infallible>>().await);
    let mut calling = Box::pin(layer.layer(endless).oneshot(request()));
    assert!(calling.as_mut().now_or_never().is_none());
    assert_eq!(left(&layer), 2);
    drop(calling);
    assert_eq!(left(&layer), 5);
}

#[test]
fn a_call_holds_its_slot_until_its_trailers_have_been_sent() {
    let policies = [Policy::new("streams", TWO), Policy::new("failures", Quota::per_hour(5)).count(Count::failures())];
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies);
    let (service, mut senders) = feeding(&layer);
    let response = crate::rig::send(&service, call());
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
