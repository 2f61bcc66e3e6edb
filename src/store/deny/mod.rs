//! Cached refusals, so that a flood of refused requests does not reach the store.
//!
//! The checks of a request come in before the inner store is called. A refusal from memory goes out, or a
//! `Snapshot` with which the inner store's decision is recorded afterwards:
//!
//! 1. `Refusals::snapshot` notes the time.
//! 2. If there is a cached refusal of a check (`Refusals::refusal`), the request is refused, with
//!    [`Source::DenyCache`](crate::Source::DenyCache).
//! 3. Otherwise the inner store decides, and `Refusals::record` caches a refusal if its counter was not changed since.
//!
//! | file | what it has |
//! | --- | --- |
//! | `cache` | [`DenyCache`], the store around a store, and its builder |
//! | `refusals` | the steps above; the cached refusals, which other ones they imply, and when counters were changed |
//!
//! Invariants: nothing is ever admitted from memory; a refusal is served no later than the cap after the store was
//! called, nor after the time at which the request may fit; and the number of refusals is bounded.

mod cache;
mod refusals;

#[cfg(feature = "redis")]
pub(crate) use cache::Called;
pub use cache::{DenyCache, DenyCacheBuilder};
#[cfg(feature = "redis")]
pub(crate) use refusals::Refusals;
