//! An admitted request, until its response: with an account, or only its decision.
//!
//! Whatever may change of a request needs an account, and so does a handle. Where there is neither, nothing is shared
//! with anybody: the future of the response has the decision, until it writes the headers.

use std::sync::Arc;

use http::Extensions;

use super::Account;
use super::metered::ByteChecks;
use crate::core::Decision;
use crate::http::gate::Gate;
use crate::store::Decided;

/// A request that was admitted.
pub(crate) enum Admitted {
    /// Something may change until its response, or later.
    WithAccount(Account),
    /// Nothing can change any more.
    AsDecided(AsDecided),
    /// A clone of the layer, outside, has counted it.
    Outside,
}

/// The decision on a request of which nothing is settled and which has no handle.
pub(crate) struct AsDecided {
    pub(crate) gate: Arc<Gate>,
    pub(crate) decision: Decision,
}

impl Admitted {
    /// A request that the store decided; `policies` are the places of those in the decision, in its order.
    pub(crate) fn new(gate: Arc<Gate>, policies: &[usize], bytes: ByteChecks, decided: Decided) -> Self {
        if !gate.settles_nothing || !decided.decision.delay().is_zero() {
            return Self::WithAccount(Account::new(gate, policies, bytes, decided));
        }
        let decision = decided.decision;
        if gate.has_handles {
            return Self::WithAccount(Account::of_nothing(gate, decision));
        }
        Self::AsDecided(AsDecided { gate, decision })
    }

    /// Returns whether the request has to wait for its turn.
    pub(crate) fn is_delayed(&self) -> bool {
        match self {
            Self::WithAccount(account) => account.is_delayed(),
            Self::AsDecided(_) | Self::Outside => false,
        }
    }

    /// Inserts a handle into the extensions of the request, if it is to have one.
    pub(crate) fn enter(&mut self, extensions: &mut Extensions) {
        if let Self::WithAccount(account) = self {
            account.enter(extensions);
        }
    }
}
