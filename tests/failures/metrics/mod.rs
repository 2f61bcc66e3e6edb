//! What operators can watch with the feature `metrics`: each thing counted once, under its name, with
//! nothing of a request in it.

#![cfg(feature = "metrics")]

#[path = "../support"]
mod support {
    #[cfg(feature = "redis")]
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod control;
    #[cfg(feature = "redis")]
    #[allow(dead_code, reason = "other tests need more of it")]
    pub(crate) mod server;
}

mod decisions;
mod documented;
mod labels;
mod outages;
#[allow(dead_code, reason = "other tests need more of it")]
#[path = "../failures/rig.rs"]
mod rig;
mod watch;
