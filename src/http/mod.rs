//! Rate limiting over HTTP: the layer and its service, the extractors of keys, and the responses to denied requests.
//!
//! [`admission`] turns the head of a request into one decision, [`account`] keeps the units taken until they are
//! settled, and [`headers`] and [`response`] write the client's response. [`gate`] holds the state that all services of
//! one layer share.
//!
//! No module below this one depends on HTTP. [`limiter`](crate::limiter) and the [stores](crate::store) decide how much
//! is left, and see policies as rules and clients as keys.

mod account;
mod admission;
mod events;
mod gate;
mod grpc;
mod headers;
pub mod key;
mod layer;
pub(crate) mod policy;
mod response;
mod service;
mod status;

pub use self::account::{ActualCost, RateLimitHandle};
pub use self::events::LogKeys;
pub use self::headers::{Draft, RateLimitHeaders, exposed_headers};
pub use self::key::extractor::MissingKey;
pub use self::layer::{Explanation, LiveLayer, PolicyExplanation, RateLimitLayer};
pub use self::policy::{AccessList, Count, Policy};
pub use self::response::{Denial, DenialReason, Drain, unavailable};
pub use self::service::{BodyError, RateLimit, ResponseBody, ResponseFuture};
pub use self::status::StatusService;
