//! The responses to requests that are shed.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, Version};
use http_body_util::BodyExt;
use tollgate::{MemoryStore, Quota};
use tollgate_shed::{Class, FleetShedLayer, Shed};

use super::rig::{Service, Text, bad_for, behind, hello, is_shed, of_class, send};

/// A service that sheds every write, by its worker.
fn worker() -> Service {
    bad_for(120).1
}

/// A service that sheds all but critical requests, by its fleet, and what holds its slots.
fn fleet() -> (Service, Response<Text>) {
    let layer = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5);
    let mut service = behind(&layer, hello());
    let held = send(&mut service, of_class(Class::Read));
    assert!(!is_shed(&held));
    (service, held)
}

/// A field and its value; empty if there is none.
fn field<'a>(response: &'a Response<Text>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("ASCII"))
}

fn bytes(response: Response<Text>) -> Bytes {
    response.into_body().collect().now_or_never().expect("a body at once").expect("a body").to_bytes()
}

/// Checks a response to a GET, and returns the seconds in `Retry-After`.
#[track_caller]
fn check(response: Response<Text>, name: &str) -> u64 {
    assert_eq!(response.status(), 503);
    assert_eq!(field(&response, "content-type"), "application/problem+json");
    assert_eq!(field(&response, "cache-control"), "no-store");
    assert!(response.headers().keys().all(|name| !name.as_str().contains("ratelimit")), "{:?}", response.headers());
    let shed = response.extensions().get::<Shed>().expect("it was shed").clone();
    assert_eq!((shed.name(), shed.class()), (name, Class::Read));
    let seconds: u64 = field(&response, "retry-after").parse().expect("a number");
    let unit = if seconds == 1 { "second" } else { "seconds" };
    let document = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"Retry in about {seconds} {unit}.","violated-policies":["{name}"]}}"#
    );
    assert_eq!(bytes(response), document);
    seconds
}

#[test]
fn a_request_that_is_shed_gets_a_503_with_a_problem_document_that_names_the_shedder() {
    let mut service = worker();
    for _ in 0..50 {
        assert!((5..=10).contains(&check(send(&mut service, of_class(Class::Read)), "worker")));
    }
    let (mut service, _held) = fleet();
    for _ in 0..50 {
        assert!((1..=3).contains(&check(send(&mut service, of_class(Class::Read)), "fleet")));
    }
}

#[test]
fn a_wait_that_is_set_is_the_least_and_at_least_a_second() {
    for (given, allowed) in [(0, 1..=2), (1, 1..=2), (60, 60..=120)] {
        let (layer, clock) = (bad_for(0).0, tollgate::test_util::ManualClock::new());
        let layer = layer.clock(clock.clone()).min_retry_after(Duration::from_secs(given));
        let mut service = behind(&layer, hello());
        // Its load is still 100 %.
        super::rig::pass(&mut service, &clock, 121);
        for _ in 0..50 {
            let seconds = check(send(&mut service, of_class(Class::Read)), "worker");
            assert!(allowed.contains(&seconds), "{seconds} of {given}");
        }
    }
}

#[test]
fn the_response_to_head_has_the_length_of_the_document_and_no_body() {
    let (fleet, _held) = fleet();
    for mut service in [worker(), fleet] {
        let mut request = of_class(Class::Read);
        *request.method_mut() = Method::HEAD;
        let response = send(&mut service, request);
        assert_eq!(response.status(), 503);
        let length: usize = field(&response, "content-length").parse().expect("a number");
        assert!(length > 200);
        assert!(bytes(response).is_empty());
    }
}

#[test]
fn a_grpc_call_that_is_shed_is_unavailable_and_says_when_to_retry() {
    let (fleet, _held) = fleet();
    for (mut service, allowed) in [(worker(), 5_000..=10_000), (fleet, 1_000..=3_000)] {
        let call = Request::post("/greeter/hello").version(Version::HTTP_2);
        let call = call
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(String::new())
            .expect("a call");
        let response = send(&mut service, call);
        assert_eq!((response.status().as_u16(), field(&response, "grpc-status")), (200, "14"));
        let millis: u64 = field(&response, "grpc-retry-pushback-ms").parse().expect("a number");
        assert!(allowed.contains(&millis), "{millis}");
        assert!(response.extensions().get::<Shed>().is_some());
        assert!(bytes(response).is_empty());
    }
}
