//! What is shed when, with which response, what counts as in progress, and services that are ready once a limiter allows.

mod back_pressure;
#[cfg(feature = "config")]
mod config;
mod documents;
mod fleet;
mod held;
#[path = "../../../../tests/support/log.rs"]
mod log;
mod nested;
mod panics;
#[path = "../../../../tests/support/panics.rs"]
mod panics_support;
mod rig;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/server.rs"]
mod server;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/slow.rs"]
mod slow;
mod worker;

use panics_support::assert_panics;
