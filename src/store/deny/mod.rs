//! Refusals this process remembers, so that a flood of them does not reach the store.

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
