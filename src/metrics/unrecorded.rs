//! The types of the metrics without the feature `metrics`: empty, and compiled away.
//!
//! They have what the rest of the crate calls, with the same signatures, so that no caller needs a `cfg`.

use super::Undecided;
use crate::core::{Decided, Error, PolicyName};

/// Times nothing.
#[derive(Clone, Copy)]
pub(crate) struct Timer;

impl Timer {
    pub(crate) fn start() -> Self {
        Self
    }
}

/// Counts no decisions.
#[derive(Clone, Default)]
pub(crate) struct Decisions {}

#[allow(clippy::unused_self, reason = "as with metrics")]
impl Decisions {
    pub(crate) fn decided<'a>(&self, _: Timer, _: &Result<Decided, Error>, _: impl IntoIterator<Item = &'a Refusals>) {}

    pub(crate) fn turned_away(&self, _: Undecided) {}
}

/// Counts no refusals.
#[derive(Clone, Default)]
pub(crate) struct Refusals {}

#[allow(clippy::unused_self, reason = "as with metrics")]
impl Refusals {
    pub(crate) fn count_ambiguous(&self, _: &PolicyName) {}
}

/// Counts no failures.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {}

#[allow(clippy::unused_self, reason = "as with metrics")]
impl StoreHealth {
    pub(crate) fn failed(&self, _: &Error) {}

    pub(crate) fn opened(&self) {}

    pub(crate) fn closed(&self) {}
}
