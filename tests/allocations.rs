//! How often the way of a request allocates, and how much for the future of a decision in Redis.
//!
//! Alone in its program, as its allocator counts for the whole process.

use std::alloc::System;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures::FutureExt;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate::store::{Ask, Check, Counter, MaybeFuture, Store};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, RedisStore, key};
use tower::{Layer, Service};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const MANY: Quota = Quota::per_minute(1_000_000);
const NONE_LEFT: Quota = Quota::per_hour(1);

#[derive(Clone)]
struct Inner;

impl Service<Request<String>> for Inner {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        black_box(&request);
        let mut response = Response::new(Empty::new());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        ready(Ok(response))
    }
}

/// Allocations of one request: the least of many, as other threads may allocate meanwhile.
fn allocations<B>(mut service: impl Service<Request<String>, Response = Response<B>>, status: StatusCode) -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    let mut count = || {
        let mut request = Request::new(String::new());
        request.headers_mut().insert("x-api-key", HeaderValue::from_static("0123456789abcdef"));
        request.headers_mut().insert("x-plan", HeaderValue::from_static("pro"));
        // The server's own extensions: axum's are there before any layer.
        request.extensions_mut().insert(());
        let region = Region::new(ALLOCATOR);
        assert!(service.poll_ready(&mut cx).is_ready());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else { panic!("nothing waits") };
        let change = region.change();
        (response.status(), change.allocations + change.reallocations)
    };
    // The first one makes the counters, and takes what others are refused.
    count();
    let counts = (0..50).map(|_| count()).inspect(|(answered, _)| assert_eq!(*answered, status));
    counts.map(|(_, count)| count).min().expect("50 requests")
}

fn layer(policies: usize, quota: Quota) -> RateLimitLayer {
    let client = || key::header("x-plan").plain();
    let policies = [
        Policy::new("user", quota).key(client()),
        Policy::new("key", quota).key(key::header("x-api-key")),
        Policy::new("all", quota),
    ]
    .into_iter()
    .take(policies);
    RateLimitLayer::composite(MemoryStore::new()).policies(policies)
}

#[track_caller]
fn at_most(most: usize, what: &str, layer: &RateLimitLayer, status: StatusCode) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // A refused request does not get to the service.
    let inner = if status == StatusCode::OK { allocations(Inner, status) } else { 0 };
    let added = allocations(layer.layer(Inner), status) - inner;
    println!("{what}: {added} allocations a request, at most {most}");
    assert!(added <= most, "{what}: {added} allocations a request, more than {most}");
}

#[test]
fn an_admitted_request_allocates_for_what_others_read_and_little_else() {
    at_most(3, "admitted, one policy", &layer(1, MANY), StatusCode::OK);
    at_most(8, "admitted, three policies", &layer(3, MANY), StatusCode::OK);
}

#[test]
fn without_headers_only_the_handle_and_what_it_leads_to_are_allocated() {
    at_most(2, "admitted, one policy, no headers", &layer(1, MANY).headers(RateLimitHeaders::none()), StatusCode::OK);
}

#[test]
fn without_headers_and_handle_one_policy_allocates_nothing_and_three_little() {
    let layer = |policies| layer(policies, MANY).headers(RateLimitHeaders::none()).without_handle();
    at_most(0, "admitted, one policy, no headers, no handle", &layer(1), StatusCode::OK);
    at_most(3, "admitted, three policies, no headers, no handle", &layer(3), StatusCode::OK);
}

#[test]
fn a_refused_request_allocates_for_its_response_only() {
    at_most(5, "refused, one policy", &layer(1, NONE_LEFT), StatusCode::TOO_MANY_REQUESTS);
    at_most(8, "refused, three policies", &layer(3, NONE_LEFT), StatusCode::TOO_MANY_REQUESTS);
}

/// The largest block in bytes that glibc keeps for each thread. A larger one comes from what all threads share, under a
/// lock.
const MAX_KEPT: usize = 1_032;

#[test]
fn the_future_of_a_decision_in_redis_is_small_enough_for_the_cache_of_a_thread() {
    let store = RedisStore::builder()
        .lazy()
        .connect("redis://127.0.0.1:1")
        .now_or_never()
        .expect("it does not wait")
        .expect("nothing is connected yet");
    let check = Check::new(Counter::new("api".try_into().expect("a valid name"), Key::new("user", "ada"), MANY), 1);
    let MaybeFuture::Pending(decision) = store.decide(&[check], Ask::default()) else { panic!("Redis was not called") };
    let size = size_of_val(&*decision);
    assert!(size <= MAX_KEPT, "{size} bytes");
}
