//! Which requests are retried, with which key and which body.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use tollgate_client::RetryLayer;

use super::rig::{Api, Call, denial, exact, get, post, send};

fn twice_denied() -> Api {
    Api::new([denial(429, &[("retry-after", "1")]), denial(503, &[])])
}

fn keys(calls: &[Call]) -> Vec<Option<String>> {
    let key =
        |headers: &http::HeaderMap| headers.get("idempotency-key").map(|key| key.to_str().expect("ASCII").to_owned());
    calls.iter().map(|(_, headers, _)| key(headers)).collect()
}

#[tokio::test(start_paused = true)]
async fn only_idempotent_methods_are_retried() {
    let methods =
        [("GET", 3), ("HEAD", 3), ("OPTIONS", 3), ("PUT", 3), ("DELETE", 3), ("POST", 1), ("PATCH", 1), ("SPELL", 1)];
    for (method, expected) in methods {
        let mut request = post();
        *request.method_mut() = method.parse().expect("a method");
        let (status, calls) = send(&exact(), &twice_denied(), request).await;
        assert_eq!((calls.len(), status == StatusCode::OK), (expected, expected == 3), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_decides_which_requests_are_retried() {
    let layer = exact().retry_if(|parts| parts.method == Method::POST);
    let (status, calls) = send(&layer, &twice_denied(), post()).await;
    assert_eq!((status, calls.len()), (StatusCode::OK, 3));
    let (status, calls) = send(&layer, &twice_denied(), get()).await;
    assert_eq!((status, calls.len()), (StatusCode::TOO_MANY_REQUESTS, 1));
}

#[tokio::test(start_paused = true)]
async fn one_key_is_sent_with_all_attempts_and_another_with_the_next_request() {
    let layer = exact().idempotency_key();
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        let (status, calls) = send(&layer, &twice_denied(), post()).await;
        assert_eq!((status, calls.len()), (StatusCode::OK, 3));
        let keys: BTreeSet<_> = keys(&calls).into_iter().map(|key| key.expect("a key")).collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        seen.extend(keys);
    }
    assert_eq!(seen.len(), 10);
    for key in seen {
        // A string of structured fields, with a UUID.
        assert!(key.len() == 38 && key.starts_with('"') && key.ends_with('"'), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_the_caller_is_kept_and_has_the_request_retried() {
    for layer in [exact(), exact().idempotency_key()] {
        let mut request = post();
        request.headers_mut().insert("idempotency-key", "mine".parse().expect("a value"));
        let (status, calls) = send(&layer, &twice_denied(), request).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(keys(&calls), vec![Some("mine".to_owned()); 3]);
    }
}

#[tokio::test(start_paused = true)]
async fn idempotent_requests_get_no_key() {
    let (_, calls) = send(&RetryLayer::new().idempotency_key(), &twice_denied(), get()).await;
    assert_eq!(keys(&calls), [None, None, None]);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_has_the_same_body_and_headers() {
    let mut request = post();
    request.headers_mut().insert("x-api-key", "ada".parse().expect("a value"));
    let headers = request.headers().clone();
    let (_, calls) = send(&exact().retry_if(|_| true), &twice_denied(), request).await;
    assert_eq!(calls.len(), 3);
    for (_, seen, body) in calls {
        assert_eq!((seen, body.as_str()), (headers.clone(), "one book"));
    }
}
