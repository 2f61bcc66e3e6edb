//! State in Redis, shared by all processes that use it.

mod apart;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod combine;
mod combiners;
mod connect;
mod connection;
mod engine;
mod job;
mod lead;
mod names;
mod needs;
mod packed;
mod patience;
mod pool;
mod prepare;
mod reply;
mod request;
mod script;
#[cfg(feature = "sentinel")]
mod sentinel;
mod servers;
mod source;
mod store;
mod tls;
mod url;
mod verdict;

pub use builder::RedisStoreBuilder;
pub use store::RedisStore;
