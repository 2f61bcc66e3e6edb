//! What happens when the store cannot decide.

mod fallback;
mod rule;
mod store;
#[cfg(all(test, feature = "cluster"))]
mod tests;
mod without;

pub(crate) use rule::FailureRules;
pub use rule::OnFailure;
pub(crate) use store::{FailureStore, SharedStore};
