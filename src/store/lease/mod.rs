//! Units taken in advance, so that hot keys are admitted without asking.

mod admit;
mod call;
mod close;
mod counts;
mod hot_key;
mod hot_keys;
mod leases;
mod lot;
mod rate;
mod store;
mod sweeping;

pub use counts::LeaseCounts;
pub use store::{LeaseStore, LeaseStoreBuilder};
