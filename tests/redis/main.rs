//! Stores on real servers: what only Redis can do to one, to connections, and to those who share it.
#![cfg(feature = "redis")]

mod ban_histories;
mod bans;
mod by_hand;
#[cfg(feature = "calendar")]
mod calendar;
#[cfg(all(feature = "axum", feature = "redis-cell"))]
mod cell;
#[cfg(feature = "cluster")]
mod cluster;
mod combining;
mod commands;
mod connecting;
mod contents;
mod eviction;
mod expiry;
mod foreign;
mod functions;
mod outages;
#[cfg(unix)]
mod reconnect;
#[cfg(unix)]
mod secure;
#[cfg(feature = "sentinel")]
mod sentinel;
mod sharing;
mod slots;
mod stores;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
mod together;
mod unused;
