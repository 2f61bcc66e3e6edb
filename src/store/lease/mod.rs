//! Units taken in advance, so that hot keys are admitted without asking.

mod back;
mod builder;
mod counts;
mod entry;
mod grant;
mod look;
mod lot;
pub(super) mod plain;
mod rate;
mod shard;
pub(super) mod shards;
mod shared;
mod store;

pub use builder::LeaseStoreBuilder;
pub use counts::LeaseCounts;
pub use store::LeaseStore;
