//! Connections to Redis that are encrypted, restricted, or on this machine only.

pub(crate) mod acl;
#[cfg(feature = "tls")]
mod dial;
mod socket;
#[cfg(feature = "tls")]
mod tls;
