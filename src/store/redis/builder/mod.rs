//! Settings of a Redis store, and connecting with them.
//!
//! A URL and settings come in; a store goes out, connected or to be connected by its first
//! decision. All settings have defaults, so that
//! [`RedisStore::connect`](crate::RedisStore::connect) needs a URL only. Nothing is checked when it
//! is set: every mistake is an error of the method that makes the store. Redis-cell's store takes
//! its connections from here too.

mod access;
mod connect;
mod settings;

#[cfg(feature = "redis-cell")]
pub(in crate::store) use connect::in_time;
pub use settings::RedisStoreBuilder;
