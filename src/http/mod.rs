//! Limits over HTTP: the layer and its service, who is counted, and what clients are answered.
//!
//! Everything here is about requests and responses; how much is left is decided below, by the stores.

mod account;
mod admission;
mod future;
mod gate;
mod grpc;
mod headers;
pub mod key;
mod layer;
mod limiter;
pub(crate) mod policy;
mod response;
mod service;
mod status;

pub use self::account::{Handle, RealCost};
pub use self::future::ResponseFuture;
pub use self::headers::{Dialect, EXPOSED_HEADERS, Headers};
pub use self::key::MissingKey;
pub use self::layer::RateLimitLayer;
pub use self::limiter::Limiter;
pub use self::policy::{AccessList, Count, Policy, TierLookup};
pub use self::response::ResponseBody;
pub use self::service::RateLimit;
pub use self::status::{PolicyStatus, Status, StatusService};
