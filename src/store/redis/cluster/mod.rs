//! The primaries of a Redis Cluster: which one has a slot, and what is done when it has lost it.
//!
//! The redis crate's cluster client sends a command again whose connection was lost, though it may
//! have run, and keeps all nodes waiting while it looks for one. Here each primary has connections and a
//! circuit breaker of its own (`node.rs`), so one that fails delays no other, and what was sent is
//! sent again only after a reply that means that it did not run.
//!
//! | the node replies | what it means | what is done |
//! | --- | --- | --- |
//! | `MOVED` | another node has the slot | the map is updated, the request is sent there |
//! | `ASK` | the slot is being moved there | the request is sent there after `ASKING` |
//! | `TRYAGAIN` | some of the request's keys are here, some there | it is sent alone, then again after a pause |
//! | `CLUSTERDOWN`, `MASTERDOWN`, `READONLY` | the node cannot decide | the request fails, the slots are looked up; a settlement is sent again |
//!
//! `store/redis/servers.rs` is the only user of this folder, except for `builder/`, which
//! creates a Cluster from its settings.

mod look;
mod looks;
mod map;
mod node;
mod route;

pub(super) use map::slot_of;
pub(super) use route::Cluster;
