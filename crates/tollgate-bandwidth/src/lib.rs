#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

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

/// The order of layers, the accuracy of limits on bytes and messages, and metrics.
pub mod guide {
    #![doc = include_str!("../docs/bandwidth.md")]

    /// A recipe for bytes per second, and bytes per day.
    ///
    #[doc = include_str!("../docs/transfers.md")]
    pub mod transfers {}
}
