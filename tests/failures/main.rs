//! Stores that fail: when they are asked, what is decided instead, how soon, and what operators see of it.

mod breaker;
mod budget;
mod causes;
#[cfg(all(feature = "axum", feature = "lookup", feature = "redis"))]
mod floods;
#[cfg(all(feature = "redis", feature = "axum"))]
mod late;
mod logs;
#[cfg(feature = "metrics")]
mod metrics;
mod probes;
mod ratios;
#[cfg(all(feature = "redis", feature = "axum"))]
mod redis;
mod rig;
mod rules;
mod shares;
mod slots;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
mod wrappers;
