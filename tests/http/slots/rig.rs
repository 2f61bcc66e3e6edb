//! A service whose bodies the test feeds, and what the layer around it has left.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Empty, Full, StreamBody};
use tollgate::body::ResponseBody;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer};
use tower::Layer;
use tower::util::BoxCloneService;

use crate::rig::{self, everybody, request, responding};

pub(super) type Inner = UnsyncBoxBody<Bytes, io::Error>;
pub(super) type Answer = Response<ResponseBody<Inner>>;
pub(super) type Service = BoxCloneService<Request<String>, Response<ResponseBody<Inner>>, Infallible>;
pub(super) type Frames = UnboundedSender<Result<Frame<Bytes>, io::Error>>;

/// What a body has next, or its end.
type Next<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// Two at once.
pub(super) const TWO: Quota = Quota::concurrency(2);

pub(super) fn streams(quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Policy::new("streams", quota))
}

/// A body that ends when its sender is dropped.
pub(super) fn fed() -> (Frames, Inner) {
    let (sender, receiver): (_, UnboundedReceiver<_>) = mpsc::unbounded();
    (sender, StreamBody::new(receiver).boxed_unsync())
}

pub(super) fn full(text: &'static str) -> Inner {
    Full::from(text).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn empty() -> Inner {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from(text))
}

/// A layer around what `respond` makes of each request.
pub(super) fn around(
    layer: &RateLimitLayer,
    respond: impl Fn(Request<String>) -> Response<Inner> + Clone + Send + 'static,
) -> Service {
    BoxCloneService::new(layer.layer(responding(respond)))
}

/// A layer whose service responds with bodies that the test feeds: the senders come in the order of the requests.
pub(super) fn feeding(layer: &RateLimitLayer) -> (Service, UnboundedReceiver<Frames>) {
    let (senders, receiver) = mpsc::unbounded();
    let service = around(layer, move |_| {
        let (sender, body) = fed();
        senders.unbounded_send(sender).expect("the test waits");
        Response::new(body)
    });
    (service, receiver)
}

#[track_caller]
pub(super) fn send(service: &Service) -> Answer {
    rig::send(service, request())
}

/// Sends a request, and returns its response and the sender of its body.
#[track_caller]
pub(super) fn send_fed(service: &Service, senders: &mut UnboundedReceiver<Frames>) -> (Answer, Frames) {
    let response = send(service);
    assert_eq!(response.status(), 200);
    (response, senders.next().now_or_never().flatten().expect("the service was called"))
}

/// The next frame of a body, if it is there.
pub(super) fn next<B: Body>(body: &mut Pin<Box<B>>) -> Option<Next<B>> {
    body.as_mut().frame().now_or_never()
}

/// What is left of the one rule of a limiter.
#[track_caller]
pub(super) fn left_of(limiter: &Limiter, key: &Key) -> u64 {
    rig::left(limiter, key)[0]
}

#[track_caller]
pub(super) fn left(layer: &RateLimitLayer) -> u64 {
    left_of(&layer.clone().live().limiter(), &everybody())
}
