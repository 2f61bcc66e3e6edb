//! Responses with a problem document (RFC 9457).
//!
//! Types are from the IETF's draft for rate limits, `quota-exceeded`, `abnormal-usage-detected` (a ban) and
//! `temporary-reduced-capacity`, or `about:blank`, which contains no more than the status. Documents are written as
//! text, because names of policies and numbers need no escaping, and because a denial should cost little: a flood
//! causes many denials.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use smallvec::SmallVec;

use super::seconds;
use crate::core::{Digits, PolicyName};
use crate::http::headers::{NO_STORE, PROBLEM, number};

const QUOTA_EXCEEDED: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
    r#""title":"Quota Exceeded","status":429,"detail":""#,
);

const ABNORMAL_USAGE: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
    r#""title":"Abnormal Usage Detected","status":429,"detail":""#,
);

const REDUCED_CAPACITY: &str = concat!(
    r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
    r#""title":"Temporary Reduced Capacity","status":503,"detail":""#,
);

const BAD_REQUEST: &str = r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":""#;

const FORBIDDEN: &str = r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":""#;

const IN: &str = "Retry in ";
const ABOUT: &str = "Retry in about ";

/// Long enough for most documents, so that only the finished text is allocated.
type Text = SmallVec<[u8; 512]>;

/// `wait` is in seconds. `None` if no wait can help.
pub(crate) fn quota_exceeded<'a>(
    wait: Option<u64>,
    is_guess: bool,
    is_banned: bool,
    policies: impl Iterator<Item = &'a str>,
) -> Bytes {
    let head = if is_banned { ABNORMAL_USAGE } else { QUOTA_EXCEEDED };
    let mut text = Text::from_slice(head.as_bytes());
    match wait {
        Some(wait) => retry(&mut text, if is_guess { ABOUT } else { IN }, wait),
        None => text.extend_from_slice(b"Do not retry: the request costs more than the limit ever admits at once."),
    }
    text.extend_from_slice(b"\",\"violated-policies\":[");
    for (index, name) in policies.enumerate() {
        text.extend_from_slice(if index == 0 { "\"" } else { ",\"" }.as_bytes());
        // A policy's name needs no escaping.
        text.extend_from_slice(name.as_bytes());
        text.push(b'"');
    }
    text.extend_from_slice(b"]}");
    Bytes::copy_from_slice(&text)
}

pub(crate) fn bad_request(detail: &str) -> Response<Bytes> {
    problem(StatusCode::BAD_REQUEST, [BAD_REQUEST, detail, "\"}"].concat().into())
}

pub(crate) fn forbidden(detail: &str) -> Response<Bytes> {
    problem(StatusCode::FORBIDDEN, [FORBIDDEN, detail, "\"}"].concat().into())
}

/// The wait is at least 1 s.
pub(crate) fn unavailable(wait: Duration) -> Response<Bytes> {
    reduced_capacity(IN, seconds(wait, 0), &["\"}"])
}

pub(crate) fn unavailable_by(name: &PolicyName, wait: Duration) -> Response<Bytes> {
    // A name needs no escaping.
    reduced_capacity(ABOUT, seconds(wait, 0), &["\",\"violated-policies\":[\"", name.as_str(), "\"]}"])
}

fn reduced_capacity(how: &str, seconds: u64, rest: &[&str]) -> Response<Bytes> {
    let mut text = Text::from_slice(REDUCED_CAPACITY.as_bytes());
    retry(&mut text, how, seconds);
    for part in rest {
        text.extend_from_slice(part.as_bytes());
    }
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, Bytes::copy_from_slice(&text));
    response.headers_mut().insert(RETRY_AFTER, number(seconds));
    response
}

fn retry(text: &mut Text, how: &str, seconds: u64) {
    text.extend_from_slice(how.as_bytes());
    text.extend_from_slice(Digits::new(seconds).as_bytes());
    text.extend_from_slice(if seconds == 1 { " second." } else { " seconds." }.as_bytes());
}

fn problem(status: StatusCode, document: Bytes) -> Response<Bytes> {
    let mut response = Response::new(document);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
