//! State in Redis, shared by all processes that use it.

mod builder;
mod combine;
mod connection;
mod engine;
mod names;
mod needs;
mod prepare;
mod reply;
mod request;
mod script;
mod source;
mod store;
mod tls;
mod url;

pub use builder::RedisStoreBuilder;
pub use store::RedisStore;
