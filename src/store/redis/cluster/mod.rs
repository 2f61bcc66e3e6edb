//! The primaries of a Redis Cluster.
//!
//! The redis crate's cluster client sends a command again whose connection was lost, though it may
//! have run, and keeps all nodes waiting while it looks for one. Here each primary has lanes of its
//! own, and a breaker (`node.rs`), and what was sent is sent again only after an answer that says it
//! did not run.

mod address;
mod look;
mod looks;
mod map;
mod node;
mod nodes;
mod primary;
mod route;
mod slot;

pub(super) use nodes::Cluster;
pub(super) use slot::slot_of;
