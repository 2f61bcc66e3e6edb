//! State in Redis, shared by all processes that use it.

mod builder;
mod combine;
mod connection;
mod engine;
mod script;
mod source;
mod store;
mod wire;

pub use builder::RedisStoreBuilder;
pub use store::RedisStore;
