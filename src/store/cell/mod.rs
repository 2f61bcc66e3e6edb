//! Counters that the Redis module redis-cell keeps.

mod builder;
mod rate;
mod store;
mod throttle;

pub use builder::RedisCellStoreBuilder;
pub use store::RedisCellStore;
