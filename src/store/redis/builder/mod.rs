//! Settings of a Redis store, and connecting with them.

mod connect;
mod lazy;
mod settings;

#[cfg(feature = "redis-cell")]
pub(in crate::store) use connect::in_time;
pub use settings::RedisStoreBuilder;
