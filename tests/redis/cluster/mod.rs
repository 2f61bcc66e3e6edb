//! A store on a real Redis Cluster: where decisions are made, and what its changes do to them.

#[path = "../support"]
mod support {
    pub(crate) mod checks;
    #[allow(dead_code, reason = "not all that can happen to a server happens here")]
    pub(crate) mod control;
    pub(crate) mod server;
}

mod apart;
mod breakers;
mod credentials;
mod failover;
mod far;
mod lazy;
#[path = "../neighbours/log.rs"]
mod log;
mod moves;
#[allow(dead_code, reason = "tests of one server need more of it")]
#[path = "../reconnect/proxy.rs"]
mod proxy;
mod rig;
mod runtimes;
mod settling;
mod storm;
mod together;
