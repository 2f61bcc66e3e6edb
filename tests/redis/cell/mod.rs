//! A store on the real module redis-cell, in a real server.

#[path = "../support"]
mod support {
    pub(crate) mod checks;
    #[allow(dead_code, reason = "not all that can happen to a server happens here")]
    pub(crate) mod control;
    pub(crate) mod server;
}

mod asking;
mod building;
mod connecting;
mod module;
mod outages;
mod requests;
mod rig;
mod twins;
