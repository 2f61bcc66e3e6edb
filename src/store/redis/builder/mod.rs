//! Settings of a Redis store, and connecting with them.

mod access;
mod connect;
mod defaults;
mod lazy;
mod settings;

#[cfg(feature = "redis-cell")]
pub(super) use connect::in_time;
pub use settings::RedisStoreBuilder;
