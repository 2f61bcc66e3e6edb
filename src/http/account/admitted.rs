//! An admitted request, until its response: with an account, or only its decision.
//!
//! Whatever may change of a request needs an account, and so does a handle. Where there is neither, nothing is shared
//! with anybody: the future of the response has the decision, until it writes the headers.

use std::borrow::Cow;
use std::sync::Arc;

use http::Extensions;

use super::Account;
use super::judgement::{self, Judgement};
use super::metered::ByteChecks;
use crate::core::{Decision, PlainDecision};
use crate::http::gate::Gate;
use crate::store::Decided;

/// A request that was admitted.
pub(crate) enum Admitted {
    /// Something may change until its response, or later.
    Open(Account),
    /// Nothing can change any more.
    Settled(Settled),
}

/// The decision on a request of which nothing is settled and which has no handle.
pub(crate) struct Settled {
    gate: Arc<Gate>,
    decision: PlainDecision,
}

impl Admitted {
    /// A request that the store decided; `policies` are the places of those in the decision, in its order.
    pub(crate) fn new(gate: Arc<Gate>, policies: &[usize], bytes: ByteChecks, decided: Decided) -> Self {
        if !gate.settles_nothing || !decided.decision.delay().is_zero() {
            return Self::Open(Account::new(gate, policies, bytes, decided));
        }
        let decision = decided.decision;
        if needs_account(&gate) {
            return Self::Open(Account::of_nothing(gate, Judgement::Made(decision)));
        }
        Self::Settled(Settled { gate, decision: decision.into() })
    }

    /// A request that all policies of the gate admit, and of which nothing is settled.
    #[inline]
    pub(crate) fn plain(gate: Arc<Gate>, decision: PlainDecision) -> Self {
        if needs_account(&gate) {
            return Self::Open(Account::of_nothing(gate, Judgement::plain(decision)));
        }
        Self::Settled(Settled { gate, decision })
    }

    /// Returns whether the request has to wait for its turn.
    #[inline]
    pub(crate) fn is_delayed(&self) -> bool {
        match self {
            Self::Open(account) => account.is_delayed(),
            Self::Settled(_) => false,
        }
    }

    /// Inserts a handle into the extensions of the request, if it is to have one.
    #[inline]
    pub(crate) fn enter(&mut self, extensions: &mut Extensions) {
        if let Self::Open(account) = self {
            account.enter(extensions);
        }
    }
}

impl Settled {
    /// Returns the gate that the request began with.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the decision as clients see it.
    pub(crate) fn shown(&self) -> Cow<'_, Decision> {
        Cow::Owned(judgement::make(&self.decision, &self.gate))
    }
}

/// Whether requests need an account even if nothing of them is settled.
#[inline]
fn needs_account(gate: &Gate) -> bool {
    gate.has_handles || gate.watch.awaits_responses()
}
