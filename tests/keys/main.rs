//! Whom a request is counted as, however it is written: one client, one counter.
#![cfg(feature = "axum")]

mod identity;
mod names;
mod one_client;
#[cfg(feature = "config")]
mod spellings;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
