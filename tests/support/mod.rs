//! What tests of several rooms use: servers, ways to them, clocks, logs, and what stores are asked.

pub(crate) mod alone;
pub(crate) mod checks;
pub(crate) mod clock;
#[cfg(feature = "redis")]
pub(crate) mod control;
pub(crate) mod doubles;
pub(crate) mod log;
pub(crate) mod nginx;
pub(crate) mod panics;
#[cfg(feature = "redis")]
pub(crate) mod proxy;
#[cfg(feature = "axum")]
pub(crate) mod requests;
#[cfg(feature = "redis")]
pub(crate) mod server;
pub(crate) mod slow;
pub(crate) mod soon;
pub(crate) mod stall;
pub(crate) mod time;
#[cfg(feature = "redis")]
pub(crate) mod vault;
