//! Decisions on states that a database keeps: what a store on another database needs of this crate.

mod evaluation;
mod format;
mod id;

pub use evaluation::{Evaluation, StateWrite};
pub use id::StateId;
