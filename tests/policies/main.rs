//! What a policy's options do to requests, in code, and what policies look up for themselves.
#![cfg(feature = "axum")]

mod lookups;
mod options;
#[cfg(feature = "calendar")]
mod panics;
mod rig;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
