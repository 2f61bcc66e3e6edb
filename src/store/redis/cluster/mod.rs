//! Routing to the primaries of a Redis Cluster.
//!
//! The redis crate's cluster client sends a command again after a lost connection, even if it may have run, and blocks
//! all nodes while it refreshes its slots. Here each primary has its own connections and circuit breaker (`node.rs`),
//! so that a failing primary delays no other. A request is sent again only after a reply that proves that it did not
//! run.
//!
//! | the node replies | meaning | reaction |
//! | --- | --- | --- |
//! | `MOVED` | another node has the slot | the map is updated, the request is sent there |
//! | `ASK` | the slot is being moved there | the request is sent there after `ASKING` |
//! | `TRYAGAIN` | the request's keys are on both nodes | it is sent alone, then again after a pause |
//! | `CLUSTERDOWN`, `MASTERDOWN`, `READONLY` | the node cannot decide | the request fails, the slots are refreshed; a settlement is sent again |

mod look;
mod looks;
mod map;
mod node;
mod route;

pub(super) use map::slot_of;
pub(super) use route::Cluster;
