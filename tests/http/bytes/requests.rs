//! Bodies of requests.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::test_util::ManualClock;
use tollgate::{
    FlowError, Handle, Key, Lookup, Over, Policy, Quota, RateLimitLayer, RequestBody, RequestBodyLayer, key,
};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use super::rig::pattern;
use crate::support::log::Log;
use crate::support::time::memory;

/// Reads the body: a 200 with its size, or a 413 with the error.
async fn read(request: Request<RequestBody<Full<Bytes>>>) -> Result<Response<String>, Infallible> {
    let (status, text) = match request.into_body().collect().await {
        Ok(body) => (StatusCode::OK, body.to_bytes().len().to_string()),
        Err(error) => {
            let cause = error.source().and_then(<dyn Error>::downcast_ref);
            assert!(cause.is_some_and(FlowError::is_refused), "{error}");
            (StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
    };
    Ok(Response::builder().status(status).body(text).expect("valid"))
}

async fn send(layers: &[RateLimitLayer], size: usize) -> StatusCode {
    let inner = RequestBodyLayer::new().layer(service_fn(read));
    let request = Request::new(Full::new(pattern(size)));
    match layers {
        [one] => one.layer(inner).oneshot(request).await.expect("a response").status(),
        [outer, one] => outer.layer(one.layer(inner)).oneshot(request).await.expect("a response").status(),
        _ => inner.oneshot(request).await.expect("a response").status(),
    }
}

fn layer(quota: Quota, over: Over) -> RateLimitLayer {
    RateLimitLayer::new(memory(&ManualClock::paused()), Policy::new("uploads", quota).request_bytes(over))
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_paced() {
    let start = Instant::now();
    assert_eq!(send(&[layer(Quota::per_second(1_000), Over::Pace)], 3_000).await, StatusCode::OK);
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_millis(2_400)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_cut_and_the_next_one_refused() {
    let layers = [layer(Quota::per_hour(1_000), Over::Cut)];
    assert_eq!(send(&layers, 999).await, StatusCode::OK);
    assert_eq!(send(&layers, 2).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(send(&layers, 0).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn both_of_two_layers_limit_an_upload() {
    let (wide, narrow) = (|| layer(Quota::per_hour(1_000), Over::Cut), || layer(Quota::per_hour(100), Over::Cut));
    assert_eq!(send(&[wide(), narrow()], 100).await, StatusCode::OK);
    assert_eq!(send(&[wide(), narrow()], 101).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(send(&[narrow(), wide()], 101).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(send(&[], 5_000).await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_limit_the_body_itself() {
    let inner = service_fn(|request: Request<Full<Bytes>>| async move {
        let (parts, body) = request.into_parts();
        let limits = parts.extensions.get::<Handle>().expect("a layer is around");
        read(Request::new(limits.limit_body(body))).await
    });
    let service = layer(Quota::per_hour(100), Over::Cut).layer(inner);
    let response = service.oneshot(Request::new(Full::new(pattern(101)))).await.expect("a response");
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

/// How often it is logged that nobody limits the body of a request, if the service responds with this status.
async fn logged(layer: RateLimitLayer, request: http::request::Builder, status: StatusCode) -> usize {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let inner = service_fn(move |_: Request<()>| async move {
        Response::builder().status(status).body(String::new()).map_err(|error| panic!("{error}"))
    });
    let sent: Result<_, Infallible> = layer.layer(inner).oneshot(request.body(()).expect("valid")).await;
    assert_eq!(sent.expect("a response").status(), status);
    log.count("unlimited_bytes")
}

/// A layer by a key that is looked up.
fn looked_up(quota: Quota, over: Over) -> RateLimitLayer {
    let account = |_: Lookup| async { Ok::<_, Infallible>(Some(Key::new("account", "7"))) };
    let policy = Policy::new("uploads", quota).key(key::lookup(key::global(), account)).request_bytes(over);
    RateLimitLayer::new(memory(&ManualClock::paused()), policy)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_limits_is_logged() {
    for layer in [layer, looked_up] {
        let logged = |request, status| logged(layer(Quota::per_hour(100), Over::Cut), request, status);
        for status in [StatusCode::UNAUTHORIZED, StatusCode::SEE_OTHER, StatusCode::PAYLOAD_TOO_LARGE] {
            let request = Request::post("/").header("content-length", "5");
            assert_eq!(logged(request, status).await, 0, "{status}: it may not have been read");
        }
        let empty = Request::post("/").header("content-length", "0");
        for request in [Request::get("/"), empty] {
            assert_eq!(logged(request, StatusCode::OK).await, 0, "there is no body");
        }
    }
    // There is one line a second, of whichever layer.
    let chunked = Request::post("/").header("transfer-encoding", "chunked");
    assert_eq!(logged(layer(Quota::per_hour(100), Over::Cut), chunked, StatusCode::OK).await, 1);
}
