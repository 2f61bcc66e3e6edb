#![doc = include_str!("../README.md")]

mod body;
mod events;
mod flow;
mod layer;
mod service;

pub use self::body::{LimitedBody, OnLimit};
pub use self::flow::{Flow, FlowError};
#[cfg(feature = "stream")]
pub use self::flow::{Paced, PacedError};
pub use self::layer::BandwidthLayer;
pub use self::service::{LimitBodies, ResponseFuture};

/// Compiles and runs the code blocks of docs/bandwidth.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/bandwidth.md")]
struct Bandwidth;

/// Compiles and runs the code block of docs/transfers.md.
#[cfg(doctest)]
#[doc = include_str!("../docs/transfers.md")]
struct Transfers;
