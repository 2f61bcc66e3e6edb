//! Settings of a Redis store, and connecting with them.
//!
//! All settings have defaults, so that [`RedisStore::connect`](crate::RedisStore::connect) needs only a URL. The method
//! that makes the store checks all settings, so their order does not matter.

mod access;
mod connect;
mod settings;

pub use settings::RedisStoreBuilder;
