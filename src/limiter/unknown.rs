//! What applies where the lookup of a tier has no result in time.

use super::limits::Limits;
use super::rule::Rule;
use crate::core::error::Kind;
use crate::core::{Error, Quota};

/// What applies to a request whose tier is not known in time: its lookup is late or fails, and no earlier result may be
/// used. [`TierLookup::on_unknown`](crate::TierLookup::on_unknown) sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "lookup"),
    allow(dead_code, unreachable_pub, reason = "without the feature no tier is looked up")
)]
pub enum UnknownTier {
    /// The policy's or rule's own quota. The default.
    #[default]
    Own,
    /// This quota, such as that of the smallest plan that is paid for.
    Quota(Quota),
    /// The policy or rule does not apply.
    Skip,
    /// The request is refused with 503; a check of a [`Limiter`](crate::Limiter) is an error.
    Deny,
}

/// The quota of a request by its tier.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tiered {
    /// It is this one, or `None` for the rule's own.
    Quota(Option<Quota>),
    /// The rule does not apply.
    Skip,
}

impl Limits {
    /// Returns the quota that a rule has by the lookup of a tier, and reports one that has no result.
    ///
    /// # Errors
    ///
    /// That of the lookup, if the request is refused without a tier.
    #[inline]
    pub(crate) fn tiered(&self, rule: &Rule, found: Result<Option<Quota>, Error>) -> Result<Tiered, Error> {
        found.map(Tiered::Quota).or_else(|error| self.without_tier(rule, error))
    }

    #[cold]
    fn without_tier(&self, rule: &Rule, error: Error) -> Result<Tiered, Error> {
        self.telemetry.unknown_tier(rule.name());
        match rule.tiers().map_or_else(UnknownTier::default, |lookup| lookup.without_result(rule.name(), &error)) {
            UnknownTier::Own => Ok(Tiered::Quota(None)),
            UnknownTier::Quota(quota) => Ok(Tiered::Quota(Some(quota))),
            UnknownTier::Skip => Ok(Tiered::Skip),
            UnknownTier::Deny => Err(error),
        }
    }
}

/// Returns the error of a lookup that a request does not wait for any longer.
pub(crate) fn late(what: &str) -> Error {
    Error::new(
        Kind::Timeout,
        format!("the {what} was not looked up within half of the budget; a result is cached for the next request"),
    )
}
