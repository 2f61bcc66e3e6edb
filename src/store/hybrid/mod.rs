//! Units admitted first and paid later, for processes far from their store.

mod builder;
mod change;
mod debt;
mod direct;
mod entry;
mod epoch;
mod ledger;
mod shard;
mod shared;
mod store;
mod ticking;

pub use builder::HybridStoreBuilder;
pub use store::HybridStore;
