//! Metrics for operators, through the `metrics` crate: decisions, refusals, and the health of stores.
//!
//! The rest of the crate reports events here, by types that it holds anyway; series go out to the recorder that the
//! program installed. docs/metrics.md lists them, with what to alert on.
//!
//! Labels are names of policies and words of this crate, never anything of a request, so clients cannot make the number
//! of series grow. Handles are registered with the first decision and kept, as looking one up costs more than counting.
//!
//! Without the feature `metrics` the same types are empty, and cost nothing.

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

/// The reason for which there was no decision on a request: the label `verdict` of the source `none`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undecided {
    /// It lacks a key that it must have, or its client is on a deny list.
    Forbidden,
    /// Its key is ambiguous.
    Ambiguous,
    /// A key extractor rejected it.
    Rejected,
    /// No decision could be made.
    Unavailable,
}
