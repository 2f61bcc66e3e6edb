//! Connections to Redis that are encrypted, restricted, or on this machine only.

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
