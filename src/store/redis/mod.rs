//! State in Redis, shared by all processes that use it.
//!
//! Its rooms, each of which knows only those before it: `wire/` (what is written and read), `connections/`, `batch/`
//! (from many callers to a call and back), `cluster/` (which server has a slot); then `servers.rs` (one server or a
//! Cluster), `engine.rs` (asking within a budget), `settle.rs`, `apart.rs` (decisions over several slots), `store.rs`
//! and `builder/`. `plain.rs` is what the store on redis-cell shares with this one.

mod apart;
mod batch;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod connections;
mod engine;
#[cfg(feature = "redis-cell")]
pub(in crate::store) mod plain;
mod servers;
mod settle;
mod store;
mod wire;

pub use builder::RedisStoreBuilder;
pub use connections::Credentials;
pub use store::RedisStore;
