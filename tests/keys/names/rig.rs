//! A layer of one request an hour, and what an application sees of requests.

use std::convert::Infallible;
use std::future::ready;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::body::ResponseBody;
use tollgate::key::KeyExtractor;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

pub(crate) type Service = BoxCloneService<Request<String>, Response<ResponseBody<Full<Bytes>>>, Infallible>;

/// The client that all the names are of.
pub(crate) const REAL: &str = "REAL";

pub(crate) const ONE: Quota = Quota::per_hour(1);

/// Requests with names of one client: more than anybody's counters have room for.
const NAMES: usize = 8;

pub(crate) fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("policy", ONE).key(key)
}

pub(crate) fn service(policy: Policy) -> Service {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    BoxCloneService::new(layer.layer(service_fn(|_| ready(Ok(Response::new(Full::from("hello")))))))
}

/// A request with lines of headers.
pub(crate) fn with<V: AsRef<[u8]>>(lines: impl IntoIterator<Item = (&'static str, V)>) -> Request<String> {
    let mut request = Request::new(String::new());
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value.as_ref()).expect("a header value");
        request.headers_mut().append(HeaderName::from_static(name), value);
    }
    request
}

/// A request with one line of a header.
pub(crate) fn one(name: &'static str, value: impl AsRef<[u8]>) -> Request<String> {
    with([(name, value)])
}

/// A request for a URI.
pub(crate) fn get(uri: &str) -> Request<String> {
    Request::get(uri).body(String::new()).expect("a URI")
}

#[track_caller]
pub(crate) fn send(service: &Service, request: Request<String>) -> Response<ResponseBody<Full<Bytes>>> {
    service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("never fails")
}

#[track_caller]
pub(crate) fn status(service: &Service, request: Request<String>) -> u16 {
    send(service, request).status().as_u16()
}

#[track_caller]
pub(crate) fn expect(service: &Service, requests: impl IntoIterator<Item = (Request<String>, u16)>) {
    for (number, (request, expected)) in requests.into_iter().enumerate() {
        assert_eq!(status(service, request), expected, "request {number}");
    }
}

#[track_caller]
pub(crate) fn body(response: Response<ResponseBody<Full<Bytes>>>) -> String {
    let collected = response.into_body().collect().now_or_never().expect("at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}

/// What an application takes for the client.
pub(crate) type Sees = fn(&Parts) -> Option<String>;

/// How many requests of one client are admitted that come under other names, after one of its own.
#[track_caller]
fn admitted(
    key: impl KeyExtractor,
    sees: Sees,
    real: Request<String>,
    mut other: impl FnMut(usize) -> Request<String>,
) -> usize {
    let service = service(policy(key));
    let client = |request: Request<String>| sees(&request.into_parts().0);
    assert_eq!(client(real.clone()).as_deref(), Some(REAL));
    expect(&service, [(real.clone(), 200), (real, 429)]);
    let mut others = (0..NAMES).map(|number| {
        let request = other(number);
        assert_eq!(client(request.clone()).as_deref(), Some(REAL), "name {number} is of the client");
        status(&service, request)
    });
    others.by_ref().filter(|status| *status == 200).count()
}

/// Whatever it writes, the client has one counter.
#[track_caller]
pub(crate) fn same(
    key: impl KeyExtractor,
    sees: Sees,
    real: Request<String>,
    names: impl IntoIterator<Item = Request<String>>,
) {
    let names: Vec<_> = names.into_iter().collect();
    let found = admitted(key, sees, real, |number| names[number % names.len()].clone());
    assert_eq!(found, 0, "requests under other names start no counter");
}

/// What is made of numbers has one counter together, beside that of the client.
#[track_caller]
pub(crate) fn shared(
    key: impl KeyExtractor,
    sees: Sees,
    real: Request<String>,
    other: impl FnMut(usize) -> Request<String>,
) {
    assert_eq!(admitted(key, sees, real, other), 1, "all requests that are not certain share one counter");
}
