//! State in Redis, shared by all processes that use it.
//!
//! Invariants of this module:
//!
//! - a decision over keys of one slot is one script call, all or nothing, at the server's time
//! - a call is sent again only if a reply, or the connection, proves that it was not executed
//! - a decision ends within its timeout, whatever the server does
//! - units taken for a caller that timed out are refunded if the reply arrives later
//!
//! Each of these modules uses only those above it:
//!
//! | module | purpose |
//! | --- | --- |
//! | `wire/` | requests and replies of the scripts |
//! | `connections/` | opening connections |
//! | `pipeline/` | batching requests of many callers into calls |
//! | `cluster/` | routing by slot |
//! | `servers.rs` | one server, or a Cluster |
//! | `engine.rs` | decisions within a timeout, and settlements |
//! | `apart.rs` | decisions over several slots |
//! | `store.rs` | the store with its deny cache |
//! | `builder/` | settings and connecting |

mod apart;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod connections;
mod engine;
mod pipeline;
mod servers;
mod store;
mod wire;

pub use builder::RedisStoreBuilder;
pub use connections::Credentials;
pub use store::RedisStore;
