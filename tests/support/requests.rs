//! Requests to a service behind a layer that responds at once.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::RateLimitLayer;
use tollgate::body::ResponseBody;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

pub(crate) type Text = Full<Bytes>;
pub(crate) type Answer = Response<ResponseBody<Text>>;
pub(crate) type Service = BoxCloneService<Request<Text>, Answer, Infallible>;

/// A layer over a handler.
pub(crate) fn over<F>(layer: &RateLimitLayer, handler: impl Fn(Request<Text>) -> F + Clone + Send + 'static) -> Service
where
    F: Future<Output = Response<Text>> + Send,
{
    BoxCloneService::new(layer.layer(service_fn(move |request| handler(request).map(Ok::<_, Infallible>))))
}

/// A layer over a service that says hello.
pub(crate) fn hello(layer: &RateLimitLayer) -> Service {
    over(layer, async |_| Response::new(Text::from("hello")))
}

/// The same request from a peer.
pub(crate) fn by(peer: &str, mut request: Request<Text>) -> Request<Text> {
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().expect("an address"), 4711)));
    request
}

/// The response of a service that answers at once.
#[track_caller]
pub(crate) fn send(service: &Service, request: Request<Text>) -> Answer {
    let response = service.clone().oneshot(request).now_or_never().expect("an answer at once");
    response.expect("the service does not fail")
}

/// Sends requests one after the other, each of which is answered at once with this status.
#[track_caller]
pub(crate) fn expect(service: &Service, rows: impl IntoIterator<Item = (Request<Text>, u16)>) {
    for (place, (request, status)) in rows.into_iter().enumerate() {
        let what = format!("request {place}: {} {} {:?}", request.method(), request.uri(), request.headers());
        assert_eq!(send(service, request).status(), status, "{what}");
    }
}

#[track_caller]
pub(crate) fn body(response: Answer) -> String {
    let collected = response.into_body().collect().now_or_never().expect("a body at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}
