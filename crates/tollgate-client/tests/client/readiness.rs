//! The contract of `poll_ready`, and errors of the inner service.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use http::{Request, Response};
use tollgate_client::{PaceLayer, RetryLayer};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_test::mock;

use super::rig::{Api, denial, exact, get};

/// A service that panics if it is called without being ready. A clone of one that is ready is not ready.
struct Strict {
    is_ready: bool,
    calls: Arc<AtomicU32>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { is_ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<String>> for Strict {
    type Response = Response<String>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Response<String>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<String>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called before it was ready");
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(if call % 3 < 2 { denial(503, &[]) } else { Response::new(String::new()) }))
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_a_call_of_a_ready_service() {
    let calls = Arc::new(AtomicU32::new(0));
    let strict = Strict { is_ready: false, calls: Arc::clone(&calls) };
    let mut service = RetryLayer::new().layer(PaceLayer::new().layer(strict));
    for _ in 0..4 {
        let response = service.ready().await.expect("ready").call(get()).await.expect("a response");
        assert_eq!(response.status(), 200);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 12);
}

#[tokio::test(start_paused = true)]
async fn a_service_is_ready_when_its_inner_service_is() {
    let (mock, mut handle) = mock::pair::<Request<String>, Response<String>>();
    let mut service = RetryLayer::new().layer(PaceLayer::new().layer(mock));
    handle.allow(0);
    assert!(service.ready().now_or_never().is_none());
    handle.allow(1);
    assert!(service.ready().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_retry_keeps_no_permit_of_the_inner_service() {
    let api = Api::new([denial(429, &[("retry-after", "20")])]);
    let service = exact().layer(ConcurrencyLimitLayer::new(1).layer(api.service()));
    let waiting = tokio::spawn(service.clone().oneshot(get()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = tokio::time::timeout(Duration::from_secs(1), service.oneshot(get())).await;
    assert_eq!(other.expect("it does not wait").expect("a response").status(), 200);
    assert_eq!(waiting.await.expect("no panic").expect("a response").status(), 200);
}

#[tokio::test(start_paused = true)]
async fn errors_are_passed_on_and_not_retried() {
    let calls = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&calls);
    let broken = service_fn(move |_: Request<String>| {
        seen.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err::<Response<String>, _>(io::Error::other("connection reset")))
    });
    let service = RetryLayer::new().retry_if(|_| true).layer(PaceLayer::new().layer(broken));
    let error = service.oneshot(get()).await.expect_err("it fails");
    assert_eq!((error.to_string().as_str(), calls.load(Ordering::Relaxed)), ("connection reset", 1));
}
