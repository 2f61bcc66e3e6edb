//! Refusals this process remembers, so that a flood of them does not reach the store.

mod cache;
mod demand;
mod refusals;
mod slots;
mod table;
mod told;

pub use cache::{DenyCache, DenyCacheBuilder};
#[cfg(feature = "redis")]
pub(crate) use refusals::{Asked, Question, Refusals};
