//! The layer's decision on an admitted request, made for whoever reads it.
//!
//! Headers and handlers read it, and accounts in which something may change. Where there are none of these the store's
//! measures are all there is of it, and names and quotas of policies are never copied.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::core::{Decision, PlainDecision};
use crate::http::gate::Gate;

/// A decision, or what makes one.
pub(super) enum Judgement {
    Made(Decision),
    /// The store's measures of all policies of the gate, and the decision once a handler has read it.
    Plain(PlainDecision, OnceLock<Box<Decision>>),
}

impl Judgement {
    /// The decision by all policies of a gate.
    #[inline]
    pub(super) fn plain(decision: PlainDecision) -> Self {
        Self::Plain(decision, OnceLock::new())
    }

    /// Returns the decision; `gate` is that which it was made by.
    pub(super) fn decision(&self, gate: &Gate) -> &Decision {
        match self {
            Self::Made(decision) => decision,
            Self::Plain(plain, made) => made.get_or_init(|| Box::new(make(plain, gate))),
        }
    }

    /// Returns the decision for its last reader.
    pub(super) fn shown(&self, gate: &Gate) -> Cow<'_, Decision> {
        match self {
            Self::Made(decision) => Cow::Borrowed(decision),
            Self::Plain(plain, made) => match made.get() {
                Some(made) => Cow::Borrowed(made),
                None => Cow::Owned(make(plain, gate)),
            },
        }
    }
}

/// Makes the decision of what a store measured for the policies of a gate.
pub(super) fn make(plain: &PlainDecision, gate: &Gate) -> Decision {
    plain.decision(gate.policies.iter().map(|policy| (policy.rule().name(), policy.rule().quota())))
}
