//! Bodies of requests.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tollgate::body::BodyError;
use tollgate::key::Lookup;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::{BandwidthLayer, FlowError, LimitedBody, OnLimit};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::pattern;
use crate::support::time::memory;

/// Reads the body: a 200 with its size, or a 413 with the error.
async fn read<B>(request: Request<LimitedBody<B>>) -> Result<Response<String>, Infallible>
where
    LimitedBody<B>: Body<Data = Bytes, Error = BodyError>,
{
    let (status, text) = match request.into_body().collect().await {
        Ok(body) => (StatusCode::OK, body.to_bytes().len().to_string()),
        Err(error) => {
            let cause = error.source().and_then(<dyn Error>::downcast_ref);
            assert!(cause.is_some_and(FlowError::is_denied), "{error}");
            (StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
    };
    Ok(Response::builder().status(status).body(text).expect("valid"))
}

async fn send(layers: &[BandwidthLayer], size: usize) -> StatusCode {
    let request = Request::new(Full::new(pattern(size)));
    let response = match layers {
        [one] => one.layer(service_fn(read)).oneshot(request).await.map(|response| response.status()),
        [outer, one] => {
            let both = outer.layer(one.layer(service_fn(read)));
            both.oneshot(request).await.map(|response| response.status())
        }
        _ => panic!("one layer or two"),
    };
    response.expect("a response")
}

fn layer(quota: Quota, over: OnLimit) -> BandwidthLayer {
    let limits = RateLimitLayer::new(memory(&ManualClock::paused()), Policy::new("uploads", quota));
    BandwidthLayer::requests(limits, over)
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_paced() {
    let start = Instant::now();
    assert_eq!(send(&[layer(Quota::per_second(1_000), OnLimit::Throttle)], 3_000).await, StatusCode::OK);
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_millis(2_400)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_cut_and_the_next_one_refused() {
    let layers = [layer(Quota::per_hour(1_000), OnLimit::Abort)];
    assert_eq!(send(&layers, 999).await, StatusCode::OK);
    assert_eq!(send(&layers, 2).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(send(&layers, 0).await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn both_of_two_layers_limit_an_upload() {
    let (wide, narrow) =
        (|| layer(Quota::per_hour(1_000), OnLimit::Abort), || layer(Quota::per_hour(100), OnLimit::Abort));
    assert_eq!(send(&[wide(), narrow()], 100).await, StatusCode::OK);
    assert_eq!(send(&[wide(), narrow()], 101).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(send(&[narrow(), wide()], 101).await, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn an_upload_by_a_key_that_is_looked_up_is_cut() {
    let account = |_: Lookup| async { Ok::<_, Infallible>(Some(Key::new("account", "7"))) };
    let policy = Policy::new("uploads", Quota::per_hour(1_000)).key(key::lookup(key::global(), account));
    let layers =
        [BandwidthLayer::requests(RateLimitLayer::new(memory(&ManualClock::paused()), policy), OnLimit::Abort)];
    assert_eq!(send(&layers, 1_000).await, StatusCode::OK);
    assert_eq!(send(&layers, 1).await, StatusCode::TOO_MANY_REQUESTS);
}
