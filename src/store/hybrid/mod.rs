//! Units admitted first and paid later, for processes far from their store.

mod builder;
mod debt;
mod direct;
mod entry;
mod shard;
mod shared;
mod store;

pub use builder::HybridStoreBuilder;
pub use store::HybridStore;
