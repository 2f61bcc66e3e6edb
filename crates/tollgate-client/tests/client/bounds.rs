//! When a client gives up: retries, the total wait, the budget, and callers who leave.

use std::time::Duration;

use http::{Response, StatusCode};
use tokio::time::{Instant, timeout};
use tollgate_client::RetryLayer;
use tollgate_client::budget::TpsBudget;
use tower::{Layer, ServiceExt};

use super::rig::{Api, denial, exact, get, send};

const SECOND: Duration = Duration::from_secs(1);

fn denials(count: usize, wait: &str) -> Vec<Response<String>> {
    (0..count).map(|_| denial(429, &[("retry-after", wait)])).collect()
}

#[tokio::test(start_paused = true)]
async fn the_last_response_is_passed_on_after_the_last_retry() {
    for retries in [0, 1, 3] {
        let (status, calls) = send(&exact().max_retries(retries), &Api::new(denials(9, "1")), get()).await;
        assert_eq!((status, calls.len()), (StatusCode::TOO_MANY_REQUESTS, retries as usize + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_wait_than_allowed_is_passed_on_at_once_and_unchanged() {
    let api = Api::new(denials(1, "31"));
    let start = Instant::now();
    let response = RetryLayer::new().layer(api.service()).oneshot(get()).await.expect("it does not fail");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"31".parse().expect("a value"))
    );
    assert_eq!((response.headers().len(), response.body().as_str(), api.calls().len()), (1, "denied", 1));
}

#[tokio::test(start_paused = true)]
async fn the_waits_of_a_request_never_exceed_the_bound_with_jitter() {
    for _ in 0..100 {
        let start = Instant::now();
        let layer = RetryLayer::new().max_retries(9).max_wait(10 * SECOND).jitter(60 * SECOND);
        let (status, calls) = send(&layer, &Api::new(denials(9, "3")), get()).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        // 3 waits of 3 s fit if they are not longer.
        assert!((2..=4).contains(&calls.len()), "{}", calls.len());
        assert!(start.elapsed() <= Duration::from_millis(10_003), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_stops_retries_in_an_outage() {
    let layer = exact().budget(TpsBudget::new(10 * SECOND, 1, 0.2));
    let api = Api::new((0..5_000).map(|_| denial(503, &[])));
    for _ in 0..1_000 {
        let (status, _) = send(&layer, &api, get()).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }
    // A reserve of 10, which is there again every 10 s.
    let calls = api.calls();
    let last = calls.last().expect("a call").0;
    assert!(last < 10 * SECOND, "{last:?}");
    assert_eq!(calls.len(), 1_000 + 10);
}

#[tokio::test(start_paused = true)]
async fn responses_that_are_no_denials_earn_retries() {
    let layer = exact().budget(TpsBudget::new(10 * SECOND, 0, 0.2));
    let (status, _) = send(&layer, &Api::new(denials(1, "1")), get()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    for _ in 0..5 {
        send(&layer, &Api::default(), get()).await;
    }
    // A clone of the layer has the same budget.
    let (status, _) = send(&layer.clone(), &Api::new(denials(1, "1")), get()).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = send(&layer, &Api::new(denials(2, "1")), get()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_while_waiting_sends_nothing_more() {
    let api = Api::new(denials(1, "5"));
    let call = RetryLayer::new().layer(api.service()).oneshot(get());
    assert!(timeout(SECOND, call).await.is_err());
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(api.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn any_setting_is_safe() {
    let layer =
        RetryLayer::new().max_retries(u32::MAX).max_wait(Duration::MAX).jitter(Duration::MAX).backoff(Duration::MAX);
    let api = Api::new([denial(503, &[])]);
    let call = layer.layer(api.service()).oneshot(get());
    // It waits for ages, and does not panic.
    assert!(timeout(3_600 * SECOND, call).await.is_err());
    let (status, calls) = send(&exact().backoff(Duration::ZERO), &Api::new([denial(503, &[])]), get()).await;
    assert_eq!((status, calls.len()), (StatusCode::OK, 2));
}
