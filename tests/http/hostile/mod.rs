//! Clients that mean harm: what they send, what they make up, and when they go away.

#![cfg(all(unix, feature = "axum", feature = "redis"))]

#[path = "../support"]
mod support {
    pub(crate) mod clock;
    pub(crate) mod server;
    pub(crate) mod slow;
}

mod bombs;
mod dropped;
mod forged;
mod heads;
mod keys;
mod rig;
