//! Layers, services and requests of most tests here, and what comes back.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, Outcome, Policy, RateLimitLayer};
use tollgate_test::TestResponse;
use tower::util::BoxCloneService;
use tower::{Service, ServiceExt, service_fn};

use crate::support::time::memory;

pub(crate) type Text = Full<Bytes>;

/// A layer on a clock that stands still.
pub(crate) fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(memory(&ManualClock::new())).policies(policies)
}

/// A service that responds to each request with what is made of it.
pub(crate) fn responding<B: Send + 'static>(
    respond: impl Fn(Request<String>) -> Response<B> + Clone + Send + 'static,
) -> BoxCloneService<Request<String>, Response<B>, Infallible> {
    BoxCloneService::new(service_fn(move |request| ready(Ok(respond(request)))))
}

pub(crate) fn hello() -> BoxCloneService<Request<String>, Response<Text>, Infallible> {
    responding(|_| Response::new(Text::from("hello")))
}

/// A request from 10.0.0.1.
pub(crate) fn request() -> Request<String> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(SocketAddr::from(([10, 0, 0, 1], 4_711)));
    request
}

/// The same with one more line of a header.
pub(crate) fn with<B>(mut request: Request<B>, name: &str, value: impl AsRef<[u8]>) -> Request<B> {
    let value = HeaderValue::from_bytes(value.as_ref()).expect("a header value");
    request.headers_mut().append(name.parse::<HeaderName>().expect("a header name"), value);
    request
}

/// A request of one user.
pub(crate) fn of(user: &str) -> Request<String> {
    with(request(), "x-user", user)
}

/// A request by another method.
pub(crate) fn by(method: Method) -> Request<String> {
    let mut request = request();
    *request.method_mut() = method;
    request
}

/// A gRPC call.
pub(crate) fn call() -> Request<String> {
    let mut call = by(Method::POST);
    *call.version_mut() = Version::HTTP_2;
    with(with(call, "content-type", "application/grpc"), "te", "trailers")
}

/// The result of what does not wait.
#[track_caller]
pub(crate) fn now<T, E: Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    future.now_or_never().expect("it does not wait").expect("it does not fail")
}

/// The response of a service that does not wait.
#[track_caller]
pub(crate) fn send<S, Q, B>(service: &S, request: Request<Q>) -> Response<B>
where
    S: Service<Request<Q>, Response = Response<B>, Error: Debug> + Clone,
{
    now(service.clone().oneshot(request))
}

#[track_caller]
pub(crate) fn text<B: Body<Data: Buf, Error: Debug>>(response: Response<B>) -> String {
    String::from_utf8(now(response.into_body().collect()).to_bytes().into()).expect("text")
}

/// The one line of a header; empty if there is none.
#[track_caller]
pub(crate) fn line<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let mut lines = headers.get_all(name).iter().map(|value| value.to_str().expect("ASCII"));
    let line = lines.next().unwrap_or_default();
    assert_eq!(lines.next(), None, "{name} is one line");
    line
}

/// Expects each of these headers to be this one line, or none where it is empty.
#[track_caller]
pub(crate) fn expect(headers: &HeaderMap, lines: &[(&str, &str)]) {
    for (name, value) in lines {
        assert_eq!(line(headers, name), *value, "{name}");
    }
}

/// Whether the response says that the client is banned.
pub(crate) fn is_banned(sent: &TestResponse) -> bool {
    String::from_utf8_lossy(sent.body()).contains("#abnormal-usage-detected")
}

/// The key of all requests.
pub(crate) fn everybody() -> Key {
    Key::new("global", "")
}

/// What each policy has left for a key.
#[track_caller]
pub(crate) fn left(limiter: &Limiter, key: &Key) -> Vec<u64> {
    now(limiter.peek(key)).outcomes().iter().map(Outcome::remaining).collect()
}
