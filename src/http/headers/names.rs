//! The names of the headers that tell clients about limits.

use http::HeaderName;
use http::header::RETRY_AFTER;

use crate::http::grpc::PUSHBACK;

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
pub(super) const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");

/// What a CORS layer must expose, so that scripts in browsers can read the limits.
///
/// `grpc-retry-pushback-ms` is for calls over gRPC-Web that are translated outside of the layer; their
/// `grpc-status` and `grpc-message` are for the translation to expose.
pub const EXPOSED_HEADERS: [HeaderName; 9] =
    [RETRY_AFTER, RATELIMIT, RATELIMIT_POLICY, LIMIT, REMAINING, RESET, USED, RESOURCE, PUSHBACK];

/// Headers that another layer or an upstream may have set.
pub(super) static TOLD: [HeaderName; 8] =
    [RETRY_AFTER, RATELIMIT, RATELIMIT_POLICY, LIMIT, REMAINING, RESET, USED, RESOURCE];
