//! A store on a real Redis Cluster: where decisions are made, and what its changes do to them.

mod apart;
mod breakers;
#[cfg(feature = "calendar")]
mod calendar;
mod credentials;
mod failover;
mod far;
mod holding;
mod lazy;
mod moves;
mod rig;
mod runtimes;
mod settling;
mod storm;
mod tally;
mod together;
