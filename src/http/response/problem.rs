//! Responses with a problem document (RFC 9457).
//!
//! Types are those of the IETF's draft for rate limits, `quota-exceeded`, `abnormal-usage-detected` (a ban) and
//! `temporary-reduced-capacity`, or `about:blank`, which contains no more than the status. Documents are written as text: names of policies and numbers
//! need no escaping, and a refusal should cost little, as it may be one of a flood.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::core::Digits;
use crate::http::headers::{number, whole_seconds};

/// The `Cache-Control` of every refusal: it is true only now, and only for this client.
pub(crate) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The document of a 429, up to its detail.
const QUOTA_EXCEEDED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Quota Exceeded","status":429,"detail":""#,
);

/// The document of a 429 to a client whose key is banned, up to its detail.
const ABNORMAL_USAGE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
    r#""title":"Abnormal Usage Detected","status":429,"detail":""#,
);

/// The document of a 503, up to its detail.
const REDUCED_CAPACITY: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporary Reduced Capacity","status":503,"detail":""#,
);

/// The document of a 400, up to its detail.
const BAD_REQUEST: &str = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":""#;

/// The document of a 403, up to its detail.
const FORBIDDEN: &str = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":""#;

/// The document of a 500.
const INTERNAL_ERROR: &str = r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#;

/// Room in bytes for a document with a few policies.
const USUAL_SIZE: usize = 256;

/// Room for the headers of a refusal.
const USUAL_HEADERS: usize = 10;

/// Returns a 429 that names the violated policies, to be retried in `wait` seconds, perhaps a guess; `None` if no wait
/// can help. Its type is another one if the client `is_banned`.
///
/// The caller adds `Retry-After` and `Cache-Control`.
pub(crate) fn quota_exceeded<'a>(
    wait: Option<u64>,
    is_guess: bool,
    is_banned: bool,
    policies: impl Iterator<Item = &'a str>,
) -> Response<Bytes> {
    let head = if is_banned { ABNORMAL_USAGE } else { QUOTA_EXCEEDED };
    let mut body = if let Some(seconds) = wait {
        retry_in(head, if is_guess { "Retry in about " } else { "Retry in " }, seconds)
    } else {
        let detail = "Do not retry: the request costs more than the limit ever admits at once.";
        document(head, &[detail])
    };
    body.push_str(",\"violated-policies\":[");
    for (index, name) in policies.enumerate() {
        // A policy's name needs no escaping.
        body.push_str(if index == 0 { "\"" } else { ",\"" });
        body.push_str(name);
        body.push('"');
    }
    body.push_str("]}");
    problem(StatusCode::TOO_MANY_REQUESTS, body)
}

/// Returns a 400.
pub(crate) fn bad_request(detail: &str) -> Response<Bytes> {
    refused(StatusCode::BAD_REQUEST, BAD_REQUEST, detail)
}

/// Returns a 403.
pub(crate) fn forbidden(detail: &str) -> Response<Bytes> {
    refused(StatusCode::FORBIDDEN, FORBIDDEN, detail)
}

fn refused(status: StatusCode, head: &str, detail: &str) -> Response<Bytes> {
    let mut response = problem(status, document(head, &[detail]) + "}");
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Returns a 500, for a closure of the application that panicked.
pub(crate) fn internal_error() -> Response<Bytes> {
    let mut response = problem(StatusCode::INTERNAL_SERVER_ERROR, INTERNAL_ERROR.to_owned());
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}

/// Returns a 503, as no decision could be made, to be retried after `wait`, but not before 1 s.
pub(crate) fn unavailable(wait: Duration) -> Response<Bytes> {
    let seconds = whole_seconds(wait).max(1);
    let body = retry_in(REDUCED_CAPACITY, "Retry in ", seconds) + "}";
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, body);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response.headers_mut().insert(RETRY_AFTER, number(seconds));
    response
}

/// Returns a 503, as the shedder `name` sheds requests, to be retried in about so many seconds.
pub(crate) fn shed(seconds: u64, name: &str) -> Response<Bytes> {
    // A name needs no escaping.
    let body = retry_in(REDUCED_CAPACITY, "Retry in about ", seconds) + ",\"violated-policies\":[\"" + name + "\"]}";
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, body);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response.headers_mut().insert(RETRY_AFTER, number(seconds));
    response
}

/// Returns a document whose detail is when to retry, without its closing brace.
fn retry_in(head: &str, retry: &str, seconds: u64) -> String {
    let unit = if seconds == 1 { " second." } else { " seconds." };
    document(head, &[retry, Digits::of(seconds).as_str(), unit])
}

/// Returns a document with the pieces of its detail joined, without its closing brace.
fn document(head: &str, detail: &[&str]) -> String {
    let mut text = String::with_capacity(USUAL_SIZE);
    text.push_str(head);
    for part in detail {
        text.push_str(part);
    }
    text.push('"');
    text
}

/// Returns a response with a document, and room for the headers of a refusal.
fn problem(status: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(USUAL_HEADERS);
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response
}
