//! Connections to Redis that are encrypted, restricted, or on this machine only.

#![cfg(all(unix, feature = "redis"))]

#[path = "../support"]
mod support {
    pub(crate) mod checks;
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod control;
    pub(crate) mod server;
}

mod acl;
#[cfg(all(feature = "tls", feature = "cluster"))]
mod cluster;
#[cfg(feature = "tls")]
mod dial;
#[cfg(all(feature = "tls", feature = "sentinel"))]
mod sentinel;
mod socket;
#[cfg(feature = "tls")]
mod tls;
