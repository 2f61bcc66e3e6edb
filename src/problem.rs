//! Problem documents (RFC 9457).

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::fields::{number, whole_seconds};
use crate::response::NO_STORE;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// Room in bytes for a document with a few policies.
const USUAL_SIZE: usize = 256;

/// Room for the headers of a refusal.
const USUAL_HEADERS: usize = 10;

/// The response to a refused request that may come again in `wait` seconds, if that can help; it names
/// the policies it violates, and is told not to be stored by who makes it.
pub(crate) fn quota_exceeded<'a>(wait: Option<u64>, policies: impl Iterator<Item = &'a str>) -> Response<Bytes> {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut body = if let Some(seconds) = wait {
        retry_in(QUOTA_EXCEEDED, "Quota Exceeded", status, seconds)
    } else {
        let detail = "No wait can help: the request costs more than is ever admitted at once.";
        document(QUOTA_EXCEEDED, "Quota Exceeded", status, &[detail])
    };
    body.push_str(",\"violated-policies\":[");
    for (index, name) in policies.enumerate() {
        // A policy's name needs no escaping.
        body.push_str(if index == 0 { "\"" } else { ",\"" });
        body.push_str(name);
        body.push('"');
    }
    body.push_str("]}");
    problem(status, body)
}

pub(crate) fn forbidden(detail: &str) -> Response<Bytes> {
    let body = document("about:blank", "Forbidden", StatusCode::FORBIDDEN, &[detail]) + "}";
    let mut response = problem(StatusCode::FORBIDDEN, body);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// The response when no decision could be made, to be retried after a wait of at least a second.
pub(crate) fn unavailable(wait: Duration) -> Response<Bytes> {
    let (status, seconds) = (StatusCode::SERVICE_UNAVAILABLE, whole_seconds(wait).max(1));
    let body = retry_in(REDUCED_CAPACITY, "Temporary Reduced Capacity", status, seconds) + "}";
    let mut response = problem(status, body);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response.headers_mut().insert(RETRY_AFTER, number(seconds));
    response
}

fn retry_in(kind: &str, title: &str, status: StatusCode, seconds: u64) -> String {
    let unit = if seconds == 1 { " second." } else { " seconds." };
    document(kind, title, status, &["Retry in ", itoa::Buffer::new().format(seconds), unit])
}

/// A document without its closing brace.
fn document(kind: &str, title: &str, status: StatusCode, detail: &[&str]) -> String {
    let mut text = String::with_capacity(USUAL_SIZE);
    let head = [r#"{"type":""#, kind, r#"","title":""#, title, r#"","status":"#, status.as_str(), r#","detail":""#];
    for part in head.iter().chain(detail).chain(&["\""]) {
        text.push_str(part);
    }
    text
}

fn problem(status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response
}
