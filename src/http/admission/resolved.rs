//! The results of resolving one policy for one request, and the state of a policy whose lookup is not finished.
//!
//! A policy resolves at once if its key and its quota follow from the head of the request. Else it becomes a
//! [`PendingPolicy`], which owns all that it needs, as the head becomes part of the inner service's request meanwhile.

use std::pin::Pin;
use std::sync::Arc;

use crate::core::{Error, Key, Quota};
use crate::http::gate::Gate;
use crate::http::key::Extracted;
use crate::http::policy::Terms;
use crate::http::response::Refusal;
use crate::limiter::CheckDraft;
use crate::store::Check;
use crate::telemetry::Skipped;

/// Why a policy does not count a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// Its methods, routes or closure leave the request out.
    Scope,
    /// The request is a CORS preflight.
    Preflight,
    /// The client is on the allow list.
    Listed,
    /// The request lacks the key.
    NoKey,
    /// The key could not be looked up, and the rule for failures admits such requests.
    Unknown,
    /// The tier is not known, and the policy does not apply without it.
    NoTier,
    /// It would refuse the request, and is in shadow mode.
    Shadow,
}

impl Skip {
    /// Returns the reason for metrics; `None` if the policy did decide.
    pub(super) fn reason(self) -> Option<Skipped> {
        match self {
            Self::Scope | Self::Preflight => Some(Skipped::Scope),
            Self::Listed => Some(Skipped::List),
            Self::NoKey | Self::Unknown | Self::NoTier => Some(Skipped::KeyMissing),
            Self::Shadow => None,
        }
    }
}

/// A policy, resolved for a request.
pub(crate) enum Resolved {
    /// The policy counts the request by this check.
    Check(Check),
    /// The policy does not count the request.
    Skip(Skip),
    /// A key or a quota has to be looked up; the lookup has not started.
    Waiting(Box<PendingPolicy>),
    /// The policy refuses the request; boxed, as this is large and rare.
    Refused(Box<Refusal>),
}

impl Resolved {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Resolved::Refused(Box::new(refusal))
    }

    /// Returns the result for a policy in shadow mode, or of another route, which never refuses.
    pub(crate) fn in_shadow(self) -> Self {
        match self {
            Resolved::Refused(_) => Resolved::Skip(Skip::Shadow),
            Resolved::Waiting(mut waiting) => {
                waiting.in_shadow = true;
                Resolved::Waiting(waiting)
            }
            other => other,
        }
    }
}

/// A check that still lacks its key, and the terms on which the policy applies.
///
/// It is all that is left of the head of a request during a lookup: cost, tier and reserve are computed before.
#[derive(Clone)]
pub(super) struct Keyless {
    pub(super) draft: CheckDraft,
    pub(super) terms: Terms,
    /// Why the request is not counted, if `terms` are that it is not.
    pub(super) uncounted: Skip,
    /// Whether the cost is ambiguous; the draft has the least that it may be.
    pub(super) ambiguous_cost: bool,
    /// Whether a part of its key is on the deny list, where another part has to be looked up.
    pub(super) denied_part: bool,
}

impl Keyless {
    pub(super) fn new(draft: CheckDraft, terms: Terms, uncounted: Skip) -> Self {
        Self { draft, terms, uncounted, ambiguous_cost: false, denied_part: false }
    }
}

/// A policy that needs a lookup before it is a check.
pub(crate) struct PendingPolicy {
    pub(super) gate: Arc<Gate>,
    pub(super) keyless: Keyless,
    pub(super) stage: Stage,
    /// Whether a refusal is dropped, as for a policy in shadow mode.
    pub(super) in_shadow: bool,
    /// Why the policy does not count the request, once that was looked up.
    pub(super) skipped: Option<Skip>,
}

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The lookup in flight.
pub(super) enum Stage {
    /// That of the key.
    Key(Pending<Extracted>),
    /// That of the quota of this key.
    Tier(Key, Pending<Result<Option<Quota>, Error>>),
}
