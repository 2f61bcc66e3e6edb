//! Requests, the text of their keys, and a layer of one request an hour.

use futures::FutureExt;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use tollgate::key::{Extracted, KeyExtractor};
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};

use crate::support::requests::hello;
pub(crate) use crate::support::requests::{Service, Text, body, by, expect, send};

pub(crate) fn policy(key: impl KeyExtractor) -> Policy {
    Policy::new("policy", Quota::per_hour(1)).key(key)
}

pub(crate) fn service(policy: Policy) -> Service {
    hello(&RateLimitLayer::new(MemoryStore::new(), policy))
}

pub(crate) fn list<const N: usize>(entries: [&str; N]) -> AccessList {
    AccessList::parse(entries).expect("the entries are right")
}

/// A request for a URI.
pub(crate) fn get(uri: &str) -> Request<Text> {
    Request::get(uri).body(Text::default()).expect("a URI")
}

/// A request with lines of a header.
pub(crate) fn with(name: &'static str, lines: &[impl AsRef<[u8]>]) -> Request<Text> {
    let mut request = get("/");
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).expect("a header value");
        request.headers_mut().append(HeaderName::from_static(name), value);
    }
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
pub(crate) fn of(key: &(impl KeyExtractor + ?Sized), request: Request<Text>) -> String {
    text(key, &request.into_parts().0)
}
