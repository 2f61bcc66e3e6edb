//! Settings of a Redis store, and connecting with them.
//!
//! A URL and settings come in; a store goes out, connected or to be connected by its first
//! decision. All settings have defaults, so that
//! [`RedisStore::connect`](crate::RedisStore::connect) needs a URL only. Nothing is checked when it
//! is set: every mistake is an error of the method that makes the store.

mod access;
mod connect;
mod settings;

pub use settings::RedisStoreBuilder;
