//! What applies where the lookup of a tier has no result in time.

use crate::core::Quota;

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
