//! Bandwidth: bodies of responses or requests whose bytes are limited, paced or cut.
//!
//! A [`BandwidthLayer`] is a [`RateLimitLayer`](crate::RateLimitLayer) whose policies count bytes. A request takes
//! nothing: the layer only looks at what is left, for its headers, and to refuse a request whose body could only be cut.
//! Bodies take their bytes as by a [`Flow`], in portions, while they pass.
//!
//! A megabyte a second for each client, whatever it downloads at once:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::bandwidth::{BandwidthLayer, OnLimit};
//! use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
//!
//! let downloads = Policy::new("downloads", Quota::per_second(1_000_000).burst(4_000_000)).key(key::peer_ip());
//! let limits = RateLimitLayer::new(MemoryStore::new(), downloads);
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "a large file" }))
//!     .layer(BandwidthLayer::responses(limits, OnLimit::Throttle));
//! # let _ = app;
//! ```
//!
//! The limits may be those of a file: `Config::layer` of the crate tollgate-config makes them.
//!
//! # Order
//!
//! Two layers are two decisions, the outer one first. A layer of bandwidth belongs inside of the one that limits
//! requests: what that refuses has no bytes to take. A request that the inner layer refuses, as its body would be cut,
//! took its units of the outer one, which refunds them only where its policies count by
//! [`Count::served`](crate::policy::Count::served). A response has the headers of both. Layers that compress bodies belong
//! inside of this one, so that what is sent is counted.
//!
//! Downloads and uploads, and policies that pace and others that cut, are a layer each.

mod body;
mod layer;
mod service;

pub use self::body::{LimitedBody, OnLimit};
pub use self::layer::BandwidthLayer;
pub use self::service::{LimitBodies, ResponseFuture};
pub use crate::limiter::{Flow, FlowError};
#[cfg(feature = "stream")]
pub use crate::limiter::{Paced, PacedError};
