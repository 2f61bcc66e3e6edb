//! A store on a real Redis Cluster: where decisions are made, and what its changes do to them.

mod apart;
mod breakers;
mod failover;
mod far;
mod holding;
mod lazy;
mod moves;
mod rig;
mod settling;
mod storm;
mod tally;
mod together;
