//! State in Redis, shared by all processes that use it.
//!
//! Checks of requests come in through [`Store`](crate::store::Store); decisions and receipts go out. What
//! the whole folder keeps true:
//!
//! - a decision over keys of one slot is one script call, all or nothing, at the server's time;
//! - a call is sent again only if a reply, or the connection, proves that it was not done;
//! - a decision ends within its timeout, whatever the server does;
//! - what was taken for a caller that timed out is refunded if the reply still comes.
//!
//! Its rooms, each of which knows only those before it:
//!
//! | room | what it is for |
//! | --- | --- |
//! | `wire/` | what is written and read |
//! | `connections/` | opening connections |
//! | `pipeline/` | from many callers to a call and back |
//! | `cluster/` | which server has a slot |
//! | `servers.rs` | one server, or a Cluster |
//! | `engine.rs` | a decision within a timeout, and changes to what was taken |
//! | `apart.rs` | decisions over several slots |
//! | `store.rs` | the store, in its deny cache |
//! | `builder/` | its settings, and connecting |

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
