//! Denials of gRPC calls, and the status of calls that were served.
//!
//! A gRPC client maps a bare 429 to `UNAVAILABLE`, which is retried blindly. So a denied call gets HTTP 200 with its
//! status in the headers ("Trailers-Only"), by the gRPC protocol over HTTP/2. The wait is in `grpc-retry-pushback-ms`,
//! the header of its retry design (gRFC A6), where a negative number means not to retry.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, request};

const GRPC: &str = "application/grpc";
pub(crate) const STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// In milliseconds. -1 if a retry cannot help.
pub(crate) const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const UNKNOWN: HeaderValue = HeaderValue::from_static("2");
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
const UNAUTHENTICATED: HeaderValue = HeaderValue::from_static("16");

/// Neither the version nor `te` counts, because proxies and layers that translate gRPC-Web change them.
pub(crate) fn is_call(parts: &request::Parts) -> bool {
    parts.method == Method::POST && kind(&parts.headers).is_some()
}

/// gRPC-Web needs no other translation, because its clients read a status in the headers, too.
pub(crate) fn for_client(call: &request::Parts, mut response: Response<Bytes>) -> Response<Bytes> {
    if let Some(kind) = kind(&call.headers) {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}

fn kind(headers: &HeaderMap) -> Option<&'static str> {
    let content_type = headers.get(CONTENT_TYPE)?.as_bytes();
    [GRPC, "application/grpc-web", "application/grpc-web-text"].into_iter().find(|kind| {
        let rest = content_type.strip_prefix(kind.as_bytes());
        rest.is_some_and(|rest| rest.first().is_none_or(|next| b"+; ".contains(next)))
    })
}

/// `None` without a `grpc-status`.
pub(crate) fn has_failed(fields: &HeaderMap) -> Option<bool> {
    let mut statuses = fields.get_all(STATUS).iter().peekable();
    statuses.peek()?;
    Some(statuses.any(|status| status != "0"))
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    kind(headers) == Some(GRPC)
}

/// `wait` is `None` if no retry can help.
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

pub(crate) fn invalid(message: &'static str) -> Response<Bytes> {
    trailers_only(INVALID_ARGUMENT, message)
}

pub(crate) fn forbidden(message: &'static str) -> Response<Bytes> {
    trailers_only(PERMISSION_DENIED, message)
}

pub(crate) fn rejected(response: Response<Bytes>) -> Response<Bytes> {
    if response.headers().contains_key(STATUS) {
        return response;
    }
    let status = match response.status() {
        StatusCode::BAD_REQUEST => INVALID_ARGUMENT,
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
        _ => UNKNOWN,
    };
    let of_status = trailers_only(status, response.status().canonical_reason().unwrap_or_default());
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::OK;
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.remove(TRANSFER_ENCODING);
    parts.headers.extend(of_status.into_parts().0.headers);
    Response::from_parts(parts, Bytes::new())
}

/// The wait is at least 1 s.
pub(crate) fn unavailable(wait: Duration) -> Response<Bytes> {
    let mut response = trailers_only(UNAVAILABLE, "temporarily reduced capacity");
    response.headers_mut().insert(PUSHBACK, millis(wait.max(Duration::from_secs(1))).into());
    response
}

/// Rounds up.
fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

fn trailers_only(status: HeaderValue, message: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(STATUS, status);
    headers.insert(MESSAGE, HeaderValue::from_static(message));
    response
}
