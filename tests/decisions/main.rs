//! What each algorithm decides, on each store, and that what requests owe at their end is what stores have.

mod algorithms;
#[cfg(feature = "redis")]
mod conformance;
#[cfg(feature = "redis")]
mod conservation;
#[cfg(feature = "redis")]
mod differential;
mod features;
mod model;
#[cfg(feature = "serde")]
mod serialized;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "redis")]
mod watched;
