//! Requests, the text of their keys, and a layer of one request an hour.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::body::ResponseBody;
use tollgate::key::{Extracted, KeyExtractor};
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

pub(crate) type Answer = Response<ResponseBody<Full<Bytes>>>;
pub(crate) type Service = BoxCloneService<Request<String>, Answer, Infallible>;

pub(crate) fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("policy", Quota::per_hour(1)).key(key)
}

pub(crate) fn service(policy: Policy) -> Service {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    BoxCloneService::new(layer.layer(service_fn(|_| ready(Ok(Response::new(Full::from("hello")))))))
}

pub(crate) fn list<const N: usize>(entries: [&str; N]) -> AccessList {
    AccessList::parse(entries).expect("the entries are right")
}

/// A request for a URI.
pub(crate) fn get(uri: &str) -> Request<String> {
    Request::get(uri).body(String::new()).expect("a URI")
}

/// A request with lines of a header.
pub(crate) fn with(name: &'static str, lines: &[impl AsRef<[u8]>]) -> Request<String> {
    let mut request = get("/");
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).expect("a header value");
        request.headers_mut().append(HeaderName::from_static(name), value);
    }
    request
}

/// The same request from a peer.
pub(crate) fn by(peer: &str, mut request: Request<String>) -> Request<String> {
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4_711);
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// The text of the key that an extractor finds, or what it answers instead.
pub(crate) fn text(key: &(impl KeyExtractor + ?Sized), parts: &Parts) -> String {
    match key.extract(parts).wait().now_or_never() {
        Some(Extracted::Key(key)) => key.to_string(),
        Some(Extracted::Secret(secret)) => secret.key().to_string(),
        Some(Extracted::Missing) => "missing".to_owned(),
        Some(Extracted::Ambiguous) => "ambiguous".to_owned(),
        Some(Extracted::Rejected(response)) => format!("rejected with {}", response.status().as_u16()),
        other => panic!("no answer: {other:?}"),
    }
}

/// The same of a request.
pub(crate) fn of(key: &(impl KeyExtractor + ?Sized), request: Request<String>) -> String {
    text(key, &request.into_parts().0)
}

#[track_caller]
pub(crate) fn send(service: &Service, request: Request<String>) -> Answer {
    service.clone().oneshot(request).now_or_never().expect("an answer at once").expect("never fails")
}

#[track_caller]
pub(crate) fn expect(service: &Service, requests: impl IntoIterator<Item = (Request<String>, u16)>) {
    for (number, (request, expected)) in requests.into_iter().enumerate() {
        let what = format!("request {number}: {} {:?}", request.uri(), request.headers());
        assert_eq!(send(service, request).status(), expected, "{what}");
    }
}

#[track_caller]
pub(crate) fn body(response: Answer) -> String {
    let collected = response.into_body().collect().now_or_never().expect("at once").expect("a body");
    String::from_utf8(collected.to_bytes().into()).expect("text")
}
