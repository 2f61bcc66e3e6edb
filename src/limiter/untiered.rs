//! Tier lookups without the feature `lookup`: a type without values, so that no other file depends on the feature.

use crate::core::{Error, Key, Quota};
use crate::limiter::lookup::RawValues;
use crate::store::MaybeFuture;

#[derive(Clone)]
pub(crate) enum NoTierLookup {}

impl NoTierLookup {
    /// Never called, because the type has no values.
    pub(crate) fn find(&self, _: &Key, _: impl FnOnce() -> RawValues) -> MaybeFuture<Result<Option<Quota>, Error>> {
        match *self {}
    }

    pub(super) fn without_result(&self, _: &str, _: Quota, _: Error) -> Result<Option<Quota>, Error> {
        match *self {}
    }
}
