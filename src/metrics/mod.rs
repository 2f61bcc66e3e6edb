//! Tells operators what is decided and how the store does, through the `metrics` crate.
//!
//! Without the feature `metrics` the same items are empty, and cost nothing.

#[cfg(feature = "metrics")]
mod decisions;
#[cfg(feature = "metrics")]
mod health;
#[cfg(feature = "metrics")]
mod names;
#[cfg(feature = "metrics")]
mod refusals;
#[cfg(not(feature = "metrics"))]
mod unrecorded;

#[cfg(not(feature = "metrics"))]
pub(crate) use self::unrecorded::{Decisions, Refusals, StoreHealth, Timer};
#[cfg(feature = "metrics")]
pub(crate) use self::{
    decisions::{Decisions, Timer},
    health::StoreHealth,
    refusals::Refusals,
};

/// Why nobody decided about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undecided {
    /// It lacks a key that it must have, or its client is on a list.
    Forbidden,
    /// Its key is not certain.
    Ambiguous,
    /// A key extractor answered it.
    Rejected,
    /// No decision could be made.
    Unavailable,
}
