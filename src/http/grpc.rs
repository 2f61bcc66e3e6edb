//! Refusals of gRPC calls, and the status of calls that were served.
//!
//! A gRPC client maps a bare 429 to `UNAVAILABLE`, which is retried blindly. So a refused call gets HTTP 200 with its
//! status in the headers ("Trailers-Only"), as the gRPC protocol over HTTP/2 has it. How long to wait is in
//! `grpc-retry-pushback-ms`, the header of its retry design (gRFC A6), where a negative number means not to retry.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Version, request};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How many milliseconds a client waits before it retries; -1 if a retry cannot help.
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// Returns whether a request is a gRPC call: a POST over HTTP/2 or later, by a client that accepts trailers.
///
/// The content type alone does not prove it: any client can send that, and would be refused with the status 200.
pub(crate) fn is_call(parts: &request::Parts) -> bool {
    parts.method == Method::POST
        && parts.version >= Version::HTTP_2
        && is_grpc(&parts.headers)
        && parts.headers.get_all(TE).iter().any(has_trailers)
}

fn has_trailers(te: &HeaderValue) -> bool {
    te.as_bytes().split(|byte| *byte == b',').any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Returns whether a call failed, by the headers or the trailers of its response; `None` if they have no
/// `grpc-status`.
pub(crate) fn has_failed(fields: &HeaderMap) -> Option<bool> {
    let mut statuses = fields.get_all(STATUS).iter().peekable();
    statuses.peek()?;
    Some(statuses.any(|status| status != "0"))
}

/// Returns whether a message has gRPC's content type. That of gRPC-Web does not count.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.first().is_none_or(|next| b"+; ".contains(next)))
}

/// Returns `RESOURCE_EXHAUSTED`, to be retried after `wait`; never if that is `None`. The message is another one if the
/// client `is_banned`.
pub(crate) fn exhausted(wait: Option<Duration>, is_banned: bool) -> Response<Bytes> {
    let pushback = wait.map_or(-1, millis);
    let message = match wait {
        None => "the call costs more than the limit ever admits",
        Some(_) if is_banned => "banned for a time",
        Some(_) => "rate limit exceeded",
    };
    let mut response = trailers_only(RESOURCE_EXHAUSTED, message);
    response.headers_mut().insert(PUSHBACK, pushback.into());
    response
}

/// Returns `INVALID_ARGUMENT`: the key of the call is ambiguous.
pub(crate) fn invalid(message: &'static str) -> Response<Bytes> {
    trailers_only(INVALID_ARGUMENT, message)
}

/// Returns `PERMISSION_DENIED`: the call has no key, or its client is on a deny list.
pub(crate) fn forbidden(message: &'static str) -> Response<Bytes> {
    trailers_only(PERMISSION_DENIED, message)
}

/// Returns `UNAVAILABLE`, to be retried after `wait`, but not before 1 s.
pub(crate) fn unavailable(wait: Duration) -> Response<Bytes> {
    let mut response = trailers_only(UNAVAILABLE, "temporarily reduced capacity");
    response.headers_mut().insert(PUSHBACK, millis(wait.max(Duration::from_secs(1))).into());
    response
}

/// Returns whole milliseconds, rounded up.
fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Returns a response of headers only, which no cache may keep.
fn trailers_only(status: HeaderValue, message: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(STATUS, status);
    headers.insert(MESSAGE, HeaderValue::from_static(message));
    response
}
