//! State in Redis, shared by all processes that use it.

mod apart;
pub(in crate::store) mod builder;
#[cfg(feature = "cluster")]
mod cluster;
pub(in crate::store) mod connect;
mod connector;
mod engine;
mod job;
pub(in crate::store) mod lane;
mod lazy;
pub(in crate::store) mod names;
mod needs;
mod one;
mod packed;
pub(in crate::store) mod patience;
mod pool;
mod prepare;
mod reply;
mod request;
mod script;
mod servers;
mod settle;
mod source;
mod store;
mod tls;
mod url;
mod verdict;

pub use builder::RedisStoreBuilder;
pub use connector::Credentials;
pub use store::RedisStore;
