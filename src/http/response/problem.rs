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

type Text<'a> = SmallVec<[&'a str; 16]>;

const IN: &str = "Retry in ";
const ABOUT: &str = "Retry in about ";

/// `wait` is in seconds. `None` if no wait can help.
pub(crate) fn quota_exceeded<'a>(
    wait: Option<u64>,
    is_guess: bool,
    is_banned: bool,
    policies: impl Iterator<Item = &'a str>,
) -> Bytes {
    let head = if is_banned { ABNORMAL_USAGE } else { QUOTA_EXCEEDED };
    let seconds = wait.map(Digits::new);
    let mut text = Text::from_slice(&[head]);
    if let (Some(wait), Some(seconds)) = (wait, &seconds) {
        text.extend([if is_guess { ABOUT } else { IN }, seconds.as_str(), unit(wait)]);
    } else {
        text.push("Do not retry: the request costs more than the limit ever admits at once.");
    }
    text.push("\",\"violated-policies\":[");
    for (index, name) in policies.enumerate() {
        // A policy's name needs no escaping.
        text.extend([if index == 0 { "\"" } else { ",\"" }, name, "\""]);
    }
    text.push("]}");
    // Of the exact size, because a text of another size would be allocated again.
    text.concat().into()
}

pub(crate) fn bad_request(detail: &str) -> Response<Bytes> {
    problem(StatusCode::BAD_REQUEST, &[BAD_REQUEST, detail, "\"}"])
}

pub(crate) fn forbidden(detail: &str) -> Response<Bytes> {
    problem(StatusCode::FORBIDDEN, &[FORBIDDEN, detail, "\"}"])
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
    let digits = Digits::new(seconds);
    let mut text = Text::from_slice(&[REDUCED_CAPACITY, how, digits.as_str(), unit(seconds)]);
    text.extend_from_slice(rest);
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, &text);
    response.headers_mut().insert(RETRY_AFTER, number(seconds));
    response
}

fn unit(seconds: u64) -> &'static str {
    if seconds == 1 { " second." } else { " seconds." }
}

fn problem(status: StatusCode, text: &[&str]) -> Response<Bytes> {
    // Of the exact size, because a text of another size would be allocated again.
    let mut response = Response::new(text.concat().into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    response.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    response
}
