//! Refusals in gRPC's terms.
//!
//! A bare 429 becomes UNAVAILABLE in clients, which they retry blindly. So a refused call is answered
//! with HTTP 200 and a status in the headers ("Trailers-Only"), as the gRPC protocol over HTTP/2 has
//! it; `grpc-retry-pushback-ms` is that of its retry design (gRFC A6).

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Version, request};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// Whether a request is a gRPC call: a POST over HTTP/2 by a client that reads trailers.
///
/// Its content type alone is no proof: any client can send it, and its refusals would have the status
/// 200.
pub(crate) fn is_call(parts: &request::Parts) -> bool {
    parts.method == Method::POST
        && parts.version >= Version::HTTP_2
        && is_grpc(&parts.headers)
        && parts.headers.get_all(TE).iter().any(has_trailers)
}

fn has_trailers(te: &HeaderValue) -> bool {
    te.as_bytes().split(|byte| *byte == b',').any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// Whether a call failed, by the head of its response or by its trailers; `None` if they do not say so.
pub(crate) fn has_failed(fields: &HeaderMap) -> Option<bool> {
    let mut statuses = fields.get_all(STATUS).iter().peekable();
    statuses.peek()?;
    Some(statuses.any(|status| status != "0"))
}

/// Whether a message is one of gRPC, by its content type. Those of gRPC-Web are not.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| rest.first().is_none_or(|next| b"+; ".contains(next)))
}

/// `RESOURCE_EXHAUSTED`, to be retried after a wait, or never.
pub(crate) fn exhausted(wait: Option<Duration>) -> Response<Bytes> {
    let pushback = wait.map_or(-1, millis);
    let message = if wait.is_some() { "rate limit exceeded" } else { "the call costs more than is ever admitted" };
    let mut response = trailers_only(RESOURCE_EXHAUSTED, message);
    response.headers_mut().insert(PUSHBACK, pushback.into());
    response
}

/// `INVALID_ARGUMENT`.
pub(crate) fn invalid(message: &'static str) -> Response<Bytes> {
    trailers_only(INVALID_ARGUMENT, message)
}

/// `PERMISSION_DENIED`.
pub(crate) fn forbidden(message: &'static str) -> Response<Bytes> {
    trailers_only(PERMISSION_DENIED, message)
}

/// `UNAVAILABLE`, to be retried after a wait of at least a second.
pub(crate) fn unavailable(wait: Duration) -> Response<Bytes> {
    let mut response = trailers_only(UNAVAILABLE, "temporarily reduced capacity");
    response.headers_mut().insert(PUSHBACK, millis(wait.max(Duration::from_secs(1))).into());
    response
}

/// Milliseconds, rounded up.
fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

fn trailers_only(status: HeaderValue, message: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(STATUS, status);
    headers.insert(MESSAGE, HeaderValue::from_static(message));
    response
}
