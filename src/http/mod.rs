//! Limits over HTTP: the layer and its service, who is counted, and what clients are answered.
//!
//! Everything here is about requests and responses; how much is left is decided below, by the stores.

mod account;
mod admission;
mod gate;
mod grpc;
mod headers;
pub mod key;
mod layer;
pub(crate) mod policy;
mod response;
mod service;
mod status;

pub use self::account::{Handle, RealCost};
pub use self::headers::{Dialect, EXPOSED_HEADERS, Headers};
pub use self::key::MissingKey;
pub use self::layer::RateLimitLayer;
pub use self::policy::{AccessList, Count, Policy};
pub use self::service::{RateLimit, ResponseBody, ResponseFuture};
pub use self::status::StatusService;
