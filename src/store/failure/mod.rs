//! What happens when the store cannot decide.

mod fallback;
mod rule;
mod spell;
mod store;
#[cfg(test)]
mod tests;
mod without;

pub(crate) use rule::FailureRules;
pub use rule::OnFailure;
pub(crate) use store::{FailureStore, SharedStore};
