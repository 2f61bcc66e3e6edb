//! Whom a request is counted as, however it is written: one client, one counter, and what cannot be told for certain
//! shares one.
#![cfg(feature = "axum")]

mod ambiguous;
mod bans;
mod by_hand;
mod client;
mod documented;
#[cfg(feature = "config")]
mod files;
mod one_client;
mod parsed;
mod rig;
mod routed;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
mod values;
