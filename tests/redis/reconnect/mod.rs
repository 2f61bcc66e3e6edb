//! Coming back to Redis by itself, and leaving nothing behind.

#![cfg(all(unix, feature = "redis"))]

#[path = "../support"]
mod support {
    pub(crate) mod checks;
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod control;
    pub(crate) mod server;
}

mod clients;
mod closures;
mod dial;
mod far;
mod leaks;
mod passwords;
#[allow(dead_code, reason = "tests of a Cluster need more of it")]
mod proxy;
mod rig;
mod silence;
