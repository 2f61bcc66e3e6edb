//! Cached denials, so that a flood of denied requests does not reach the store.
//!
//! 1. `Refusals::snapshot` records the time.
//! 2. If a check has a cached denial (`Refusals::refusal`), the request is denied, with
//!    [`Source::DenyCache`](crate::Source::DenyCache).
//! 3. Otherwise the inner store decides, and `Refusals::record` caches a denial if its counter was not changed since.
//!
//! Invariants: nothing is ever allowed from memory. A denial is served no later than the cap after the store was
//! called, nor after the time at which the request may fit. The number of denials is bounded.

mod cache;
mod refusals;

#[cfg(feature = "redis")]
pub(crate) use cache::Called;
pub use cache::{DenyCache, DenyCacheBuilder};
#[cfg(feature = "redis")]
pub(crate) use refusals::Refusals;
