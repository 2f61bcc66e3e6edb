//! The names of the headers that this crate writes.

use http::HeaderName;
use http::header::RETRY_AFTER;

use crate::http::grpc::{MESSAGE, PUSHBACK, STATUS};

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
pub(super) const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");

/// The headers that a CORS layer has to expose, so that scripts in browsers can read the limits.
///
/// It is all that any [`Headers`](crate::Headers) may send, so it need not change with them. A later version may have
/// more: rely on what is in it, not on how many. The last three are for calls of gRPC-Web.
///
/// # Examples
///
/// ```
/// use tollgate::EXPOSED_HEADERS;
///
/// // With tower-http: `CorsLayer::new().expose_headers(EXPOSED_HEADERS)`.
/// assert!(EXPOSED_HEADERS.iter().any(|name| name == "retry-after"));
/// ```
pub const EXPOSED_HEADERS: [HeaderName; 11] =
    [RETRY_AFTER, RATELIMIT, RATELIMIT_POLICY, LIMIT, REMAINING, RESET, USED, RESOURCE, PUSHBACK, STATUS, MESSAGE];
