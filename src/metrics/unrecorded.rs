//! Nothing, in place of metrics.

use crate::admission::Verdict;
use crate::store::Decided;
use crate::{Error, Policy};

#[derive(Clone, Copy)]
pub(crate) struct Timer;

impl Timer {
    pub(crate) fn start() -> Self {
        Self
    }
}

#[derive(Clone, Default)]
pub(crate) struct Decisions {}

#[allow(clippy::unused_self, reason = "as with metrics")]
impl Decisions {
    pub(crate) fn decided<'a>(&self, _: Timer, _: &Result<Decided, Error>, _: impl IntoIterator<Item = &'a Policy>) {}

    pub(crate) fn turned_away(&self, _: &Verdict) {}
}

#[derive(Clone, Default)]
pub(crate) struct Refusals {}

#[allow(clippy::unused_self, reason = "as with metrics")]
impl Refusals {
    pub(crate) fn count_ambiguous(&self, _: &Policy) {}
}

#[derive(Debug, Default)]
pub(crate) struct StoreHealth {}

#[allow(clippy::unused_self, reason = "as with metrics")]
impl StoreHealth {
    pub(crate) fn failed(&self, _: &Error) {}

    pub(crate) fn opened(&self) {}

    pub(crate) fn closed(&self) {}
}
