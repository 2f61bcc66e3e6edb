//! Decisions when the store cannot decide.
//!
//! `FailureStore` wraps the store of a layer or limiter. It decides within the timeout whatever the inner store does,
//! as long as there is a runtime for its timers.
//!
//! - `rule.rs` is the public rule, [`OnFailure`], and its settings.
//! - `store.rs` calls the inner store with a timeout, and runs probes.
//! - `without.rs` decides by rules or by this process's share of each quota, and reports outcomes to the circuit
//!   breaker.
//!
//! Invariants: every call with a permit is reported to the breaker once. The store that returned a receipt settles it.
//! An error of one server of several never opens the breaker for all. This module does not depend on HTTP.

mod rule;
mod store;
#[cfg(test)]
mod tests;
mod without;

pub(crate) use rule::FailureRules;
pub use rule::OnFailure;
pub(crate) use store::{Call, Deciding, FailureStore, SharedStore};
