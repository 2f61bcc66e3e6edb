//! Results of resolving one policy for one request, and the state of a policy whose lookup is not finished.
//!
//! A policy resolves at once if its key and its quota follow from the head of the request. Otherwise it becomes a
//! [`PendingPolicy`], which owns all its data, because the head moves into the inner service's request.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use crate::core::{Error, Key, Quota};
use crate::http::gate::LayerState;
use crate::http::key::Extracted;
use crate::http::policy::Terms;
use crate::http::response::Refusal;
use crate::limiter::CheckDraft;
use crate::store::Check;
use crate::telemetry::Skipped;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    Scope,
    Listed,
    NoKey,
    Unknown,
    NoTier,
    Shadow,
    Override,
}

impl Skip {
    pub(super) fn reason(self) -> Option<Skipped> {
        match self {
            Self::Scope => Some(Skipped::Scope),
            Self::Listed => Some(Skipped::List),
            Self::NoKey | Self::Unknown | Self::NoTier => Some(Skipped::KeyMissing),
            Self::Override => Some(Skipped::Override),
            Self::Shadow => None,
        }
    }
}

pub(crate) enum Resolved {
    Check(Check),
    Skip(Skip),
    /// The lookup has not started.
    Waiting(Box<PendingPolicy>),
    /// Boxed because it is large and rare.
    Refused(Box<Refusal>),
}

impl Resolved {
    pub(super) fn refused(refusal: Refusal) -> Self {
        Resolved::Refused(Box::new(refusal))
    }

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

/// All data that a lookup keeps of a request's head. Cost, tier and reserve are computed before the lookup.
#[derive(Clone)]
pub(super) struct Keyless {
    pub(super) draft: CheckDraft,
    pub(super) terms: Terms,
    pub(super) ambiguous_cost: bool,
    /// `true` if a part of the key is on the deny list, and another part needs a lookup.
    pub(super) denied_part: bool,
    /// The address in the key, if another part needs a lookup.
    pub(super) address: Option<IpAddr>,
}

impl Keyless {
    pub(super) fn new(draft: CheckDraft, terms: Terms) -> Self {
        Self { draft, terms, ambiguous_cost: false, denied_part: false, address: None }
    }

    /// Why the policy skips a request without a key that needs none.
    pub(super) fn uncounted(&self) -> Skip {
        if self.terms.counted { Skip::Scope } else { Skip::Listed }
    }

    /// A look for a ban denies only requests whose key is ambiguous.
    pub(super) fn denies(&self, refusal: &Refusal) -> bool {
        !self.draft.only_ban || matches!(refusal, Refusal::Ambiguous)
    }
}

pub(crate) struct PendingPolicy {
    pub(super) gate: Arc<LayerState>,
    pub(super) keyless: Keyless,
    pub(super) stage: LookupStage,
    pub(super) in_shadow: bool,
    pub(super) skipped: Option<Skip>,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(super) enum LookupStage {
    Key(BoxFuture<Extracted>),
    Tier(Key, BoxFuture<Result<Option<Quota>, Error>>),
}
