//! Cached refusals, so that a flood of refused requests does not reach the store.
//!
//! The checks of a request come in before the inner store is called. Out goes a refusal from memory, or a
//! `Question` with which the inner store's decision is learnt from afterwards:
//!
//! 1. `Refusals::ask` notes the time and, for each check, how often its counter has been forgotten (its generation).
//! 2. If a check is known not to fit, the request is refused, with [`Source::DenyCache`](crate::Source::DenyCache).
//! 3. Else the inner store decides, and `Refusals::learn` caches a refusal if no counter was changed meanwhile.
//!
//! | file | what it has |
//! | --- | --- |
//! | `cache` | [`DenyCache`], the store around a store, and its builder |
//! | `refusals` | the steps above, and forgetting |
//! | `question` | what is noted of a request before the store decides |
//! | `demand` | which refusals imply others, by algorithm |
//! | `table`, `slots` | the cached refusals; when counters were changed |
//! | `told` | the outcomes of a request refused from memory |
//!
//! Invariants: nothing is ever admitted from memory; a refusal is served no later than the cap after it was asked for,
//! nor after the time at which the request may fit; and the number of refusals is bounded.
//!
//! A [`RedisStore`](crate::RedisStore) uses `Refusals` itself; everybody else uses `DenyCache`.

mod cache;
mod demand;
mod question;
mod refusals;
mod slots;
mod table;
mod told;

pub use cache::{DenyCache, DenyCacheBuilder};
#[cfg(feature = "redis")]
pub(crate) use question::{Asked, Question};
#[cfg(feature = "redis")]
pub(crate) use refusals::Refusals;
