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
use tollgate::{Key, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::{BandwidthLayer, FlowError, LimitedBody, OnLimit};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::pattern;
use crate::audit::memory;

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

async fn send(layer: &BandwidthLayer, size: usize) -> StatusCode {
    let request = Request::new(Full::new(pattern(size)));
    layer.layer(service_fn(read)).oneshot(request).await.expect("a response").status()
}

fn layer(policy: Policy, over: OnLimit) -> BandwidthLayer {
    BandwidthLayer::requests(RateLimitLayer::new(memory(), policy), over)
}

fn uploads(quota: Quota, over: OnLimit) -> BandwidthLayer {
    layer(Policy::new("uploads", quota), over)
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_paced() {
    let start = Instant::now();
    assert_eq!(send(&uploads(Quota::per_second(1_000), OnLimit::Throttle), 3_000).await, StatusCode::OK);
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_millis(2_400)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_cut_and_the_next_one_refused() {
    let account = |_: Lookup| async { Ok::<_, Infallible>(Some(Key::new("account", "7"))) };
    let looked_up = Policy::new("uploads", Quota::per_hour(1_000)).key(key::lookup(key::global(), account));
    for layer in [uploads(Quota::per_hour(1_000), OnLimit::Abort), layer(looked_up, OnLimit::Abort)] {
        assert_eq!(send(&layer, 999).await, StatusCode::OK);
        assert_eq!(send(&layer, 2).await, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(send(&layer, 0).await, StatusCode::TOO_MANY_REQUESTS);
    }
}
