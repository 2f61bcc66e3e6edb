//! State in Redis, shared by all processes that use it.

mod alarm;
mod apart;
mod batch;
pub(in crate::store) mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod combine;
mod combiners;
pub(in crate::store) mod connect;
pub(in crate::store) mod connection;
mod connector;
mod engine;
mod job;
mod lazy;
mod lead;
pub(in crate::store) mod names;
mod needs;
mod packed;
pub(in crate::store) mod patience;
mod pool;
mod prepare;
mod reply;
mod request;
mod script;
mod servers;
mod source;
mod store;
mod tls;
mod url;
mod verdict;

pub use builder::RedisStoreBuilder;
pub use connector::Credentials;
pub use store::RedisStore;
