//! Decisions on states of a database, for stores outside of this crate.

mod evaluation;
mod format;
mod id;

pub use evaluation::{Evaluation, StateWrite};
pub use id::StateId;
