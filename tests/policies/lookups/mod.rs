//! What a layer looks up for itself: shielded, by the raw value, and within the budget.
#![cfg(all(feature = "axum", feature = "redis"))]

#[path = "../support"]
mod support {
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod clock;
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod log;
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod server;
}

mod budget;
mod flights;
mod logs;
mod looks;
mod raw;
mod rig;
mod shield;
mod unknown;
