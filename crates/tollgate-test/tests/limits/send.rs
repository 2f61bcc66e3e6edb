//! Requests through a layer.

use http::{Request, StatusCode};
use tollgate::policy::MissingKey;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
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
    assert_eq!(sent.iter().map(TestResponse::is_allowed).collect::<Vec<_>>(), [true, true, false, true]);
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
    assert!(!sent[0].is_allowed() && sent[0].decision().is_none());
}
