//! Requests through a layer.

use std::time::Duration;

use http::{Request, StatusCode};
use tokio::time::Instant;
use tollgate::policy::MissingKey;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Source, key};
use tollgate_test::{TestResponse, send};

fn policy(quota: Quota) -> Policy {
    Policy::new("api", quota).key(key::header("x-user")).missing_key(MissingKey::Deny)
}

fn of(user: &str) -> Request<String> {
    Request::builder().header("x-user", user).body(String::new()).expect("a valid request")
}

#[tokio::test]
async fn each_request_has_its_response_and_decision() {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy(Quota::per_hour(2))).expose_decisions();
    let sent = send(&layer, 4, |index| of(if index == 3 { "bob" } else { "ada" })).await;
    assert_eq!(sent.iter().map(TestResponse::is_admitted).collect::<Vec<_>>(), [true, true, false, true]);
    let remaining = |one: &TestResponse| one.decision().map(|decision| decision.outcomes()[0].remaining());
    assert_eq!(sent.iter().map(remaining).collect::<Vec<_>>(), [Some(1), Some(0), Some(0), Some(1)]);
    assert_eq!((sent[0].status(), sent[2].status()), (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS));
    assert!(sent[0].body().is_empty() && sent[2].body().starts_with(b"{\"type\""));
    assert_eq!(sent[2].headers()["retry-after"], "1800");
}

#[tokio::test]
async fn a_request_that_is_denied_without_a_decision_has_none() {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy(Quota::per_hour(2)));
    let sent = send(&layer, 1, |_| Request::new(String::new())).await;
    assert_eq!(sent[0].status(), StatusCode::FORBIDDEN);
    assert!(!sent[0].is_admitted() && sent[0].decision().is_none());
}

#[tokio::test]
async fn requests_queue_by_a_paused_clock() {
    let (clock, start) = (ManualClock::paused(), Instant::now());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let layer = RateLimitLayer::new(store, policy(Quota::leaky_bucket(1, Duration::from_secs(60)).queue(9)));
    let sent = send(&layer, 3, |_| of("ada")).await;
    assert!(sent.iter().all(TestResponse::is_admitted));
    assert_eq!(start.elapsed().as_secs(), 120);
}

#[tokio::test]
async fn a_store_that_fails_is_seen_in_the_decision() {
    let store = FailingStore::new(MemoryStore::new());
    let layer = RateLimitLayer::new(store.clone(), policy(Quota::per_hour(2))).on_failure(OnFailure::Fallback);
    store.fail();
    let sent = send(&layer, 1, |_| of("ada")).await;
    assert_eq!(sent[0].decision().map(tollgate::Decision::source), Some(Source::Fallback));
}
