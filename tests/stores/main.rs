//! The store in memory, and stores that keep some of it around another: refusals, and leases.

mod deny_cache;
#[cfg(feature = "redis")]
mod leases;
mod memory;
mod settings;
#[allow(dead_code, reason = "other rooms use more of it")]
#[path = "../support/mod.rs"]
mod support;
mod test_util;
mod wall_clock;
