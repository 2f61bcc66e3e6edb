//! Facts about a denial, for the application's closure.

use std::time::Duration;

use http::StatusCode;

use super::seconds;
use crate::core::Decision;

/// Reason and default response of a denied request, for [`on_denied`](crate::RateLimitLayer::on_denied).
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    pub(super) reason: DenialReason<'a>,
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    /// In seconds.
    pub(super) later: u64,
}

/// Reason of a [`Denial`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenialReason<'a> {
    /// Policies deny the request, by this decision.
    RateLimited(&'a Decision),
    /// The key is [banned](crate::Ban), by this decision.
    Banned(&'a Decision),
    /// The request has no key, and a policy [denies](crate::policy::MissingKey::Deny) such requests.
    MissingKey,
    /// The key or the cost of the request is ambiguous.
    AmbiguousKey,
    /// The client is on a [deny list](crate::Policy::deny).
    DenyListed,
    /// There is no decision, because the store or a lookup failed or timed out.
    Unavailable,
}

impl<'a> Denial<'a> {
    /// Returns the reason.
    pub fn reason(&self) -> DenialReason<'a> {
        self.reason
    }

    /// Returns the status that the layer would send: 429, 403, 400 or 503.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the time after which a retry may succeed. `None` if no wait can help.
    ///
    /// It is not rounded, so `as_secs` may be 0: for a body use [`retry_after_secs`](Self::retry_after_secs).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the seconds in the `Retry-After` of this very response. `None` if no wait can help.
    ///
    /// They are rounded up, at least 1, and include the [jitter](crate::RateLimitHeaders::jitter).
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after.map(|wait| seconds(wait, self.later))
    }

    /// Returns the decision that denies the request. `None` if it was denied without one.
    pub fn decision(&self) -> Option<&'a Decision> {
        match self.reason {
            DenialReason::RateLimited(decision) | DenialReason::Banned(decision) => Some(decision),
            _ => None,
        }
    }
}
