#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Invariants: a request never waits; a report is sent once; no lock is held while the tally is called; replies of a
// tally only set ratios, which always are from 0 to 1, and none holds for longer than a TTL.

mod builder;
#[cfg(feature = "config")]
mod config;
mod counter;
mod events;
mod memory;
mod parts;
#[cfg(feature = "redis")]
mod redis;
mod shared;
mod store;
mod tally;
mod ticking;
#[cfg(feature = "redis")]
mod wire;

pub use builder::RatioStoreBuilder;
#[cfg(feature = "config")]
pub use config::RatioConfig;
pub use memory::MemoryTally;
pub use store::RatioStore;
pub use tally::{CounterId, Offered, Report, Tally, Totals};

/// How ratios are computed, their accuracy and their limits, and measurements.
pub mod guide {
    #![doc = include_str!("../docs/ratios.md")]
}
