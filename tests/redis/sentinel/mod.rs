//! A store on the primary that real sentinels name.

#[path = "../support"]
mod support {
    pub(crate) mod checks;
    #[allow(dead_code, reason = "not all that can happen to a server happens here")]
    pub(crate) mod control;
    #[allow(dead_code, reason = "what is in a server matters little here")]
    pub(crate) mod server;
}

mod credentials;
mod failover;
mod rig;
