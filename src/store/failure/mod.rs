//! What is decided when the store cannot decide.
//!
//! The store of a layer or limiter comes in, with the rules for failures; a store around it goes
//! out, `FailureStore`, whose decisions are ready within the timeout whatever the
//! inner store does, as long as there is a runtime for its timers.
//!
//! - `rule.rs` is the public rule, [`OnFailure`], and its settings.
//! - `store.rs` calls the inner store, limits its time, and runs probes.
//! - `without.rs` decides instead of it, by rules or by this process's share of each quota, and reports
//!   outcomes to the circuit breaker.
//!
//! Invariants: every call with a permit is reported to the breaker once; a receipt is settled by the
//! store that returned it; an error of one server of several never opens the breaker for all. Layers
//! and limiters know `FailureStore` and `FailureRules`; this module uses the breaker, the memory
//! store and the metrics of store failures, and does not depend on HTTP.

mod rule;
mod store;
#[cfg(test)]
mod tests;
mod without;

pub(crate) use rule::FailureRules;
pub use rule::OnFailure;
pub(crate) use store::{Call, Deciding, FailureStore, SharedStore};
