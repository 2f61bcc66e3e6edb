//! Layers that limit bytes, around a service that responds with the frames of a test.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tollgate::body::{BodyError, ResponseBody};
use tollgate::{Key, Limiter, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, FlowError, LimitedBody, OnLimit};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::audit::{Audit, Counts, memory};

pub(super) const SECOND: Quota = Quota::per_second(1_000);
pub(super) const HOUR: Quota = Quota::fixed_window(1_000, std::time::Duration::from_secs(3_600));

pub(super) type Inner = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type Answer = Response<ResponseBody<LimitedBody<Inner>>>;

pub(super) fn bytes(quota: Quota) -> Policy {
    Policy::new("bytes", quota)
}

/// A layer over a store by tokio's paused time, and what that store has admitted.
pub(super) struct Rig {
    pub(super) layer: BandwidthLayer,
    pub(super) counts: Arc<Counts>,
}

impl Rig {
    pub(super) fn new(policies: impl IntoIterator<Item = Policy>, over: OnLimit) -> Self {
        let (store, counts) = Audit::new(memory());
        let limits = RateLimitLayer::composite(store).policies(policies);
        Self { layer: BandwidthLayer::responses(limits, over), counts }
    }

    pub(super) fn limiter(&self) -> Limiter {
        self.layer.limits().limiter()
    }

    /// Sends a request whose response has this body.
    pub(super) async fn send(&self, body: Inner) -> Answer {
        send(&self.layer, Request::new(String::new()), body).await
    }

    /// What is left of the first policy, for all requests.
    pub(super) async fn left(&self) -> u64 {
        self.limiter().peek(&Key::new("global", "")).await.expect("memory decides").outcomes()[0].remaining()
    }
}

/// Sends a request through a layer, whose response has this body.
pub(super) async fn send(layer: &BandwidthLayer, request: Request<String>, body: Inner) -> Answer {
    layer.layer(serve(body)).oneshot(request).await.expect("a response")
}

/// A service whose only response has this body.
pub(super) fn serve<B>(
    body: Inner,
) -> impl Service<Request<B>, Response = Response<Inner>, Error = Infallible> + Clone {
    let body = Arc::new(Mutex::new(Some(body)));
    service_fn(move |_: Request<B>| {
        let body = body.lock().expect("no panic").take().expect("one request");
        std::future::ready(Ok(Response::new(body)))
    })
}

/// A body of these chunks, with trailers at its end if `trailers`.
pub(super) fn body(chunks: impl IntoIterator<Item = Bytes>, trailers: bool) -> Inner {
    let mut frames: Vec<Result<Frame<Bytes>, io::Error>> =
        chunks.into_iter().map(|chunk| Ok(Frame::data(chunk))).collect();
    if trailers {
        let map = HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))]);
        frames.push(Ok(Frame::trailers(map)));
    }
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Bytes that differ from place to place.
pub(super) fn pattern(size: usize) -> Bytes {
    (0..size).map(|place| u8::try_from(place % 251).expect("small")).collect()
}

/// Reads all of a body, and returns its size, or the policy that cut it.
pub(super) async fn read<B>(response: Response<B>) -> Result<usize, String>
where
    B: Body<Data = Bytes, Error = BodyError>,
{
    let read = response.into_body().collect().await;
    read.map(|body| body.to_bytes().len())
        .map_err(|error| cause::<FlowError>(&error).policy().unwrap_or_default().to_owned())
}

/// The cause of an error, which is of this type.
#[track_caller]
pub(super) fn cause<E: Error + 'static>(error: &BodyError) -> &E {
    error.source().and_then(<dyn Error>::downcast_ref).unwrap_or_else(|| panic!("{error:?}"))
}
