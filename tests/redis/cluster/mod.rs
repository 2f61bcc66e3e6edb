//! A store on a real Redis Cluster: where decisions are made, and what its changes do to them.

mod apart;
mod breakers;
mod failover;
mod moves;
pub(super) mod rig;
mod tally;
mod together;
