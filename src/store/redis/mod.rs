//! State in Redis, shared by all processes that use it.

mod apart;
pub(in crate::store) mod batch;
pub(in crate::store) mod builder;
#[cfg(feature = "cluster")]
mod cluster;
pub(in crate::store) mod connections;
mod engine;
mod servers;
mod settle;
mod store;
pub(in crate::store) mod wire;

pub use builder::RedisStoreBuilder;
pub use connections::Credentials;
pub use store::RedisStore;
