//! What each algorithm decides, in memory and in Redis, and that what requests owe at their end is what stores have.

#[cfg(feature = "redis")]
#[path = "../algorithms/mod.rs"]
mod algorithms;
#[cfg(feature = "redis")]
#[path = "../conformance/mod.rs"]
mod conformance;
#[cfg(feature = "redis")]
mod conservation;
#[allow(clippy::duplicate_mod, reason = "it has what it uses of what is shared")]
#[cfg(feature = "redis")]
#[path = "../differential.rs"]
mod differential;
mod model;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
