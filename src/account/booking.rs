//! What one decision took, as long as it can change.

use smallvec::SmallVec;

use super::Shared;
use crate::gate::Gate;
use crate::store::{Receipt, Taken};
use crate::{Decision, Outcome, Policy};

/// What one decision took.
pub(super) struct Booking {
    of: Of,
    pub(super) receipt: Receipt,
    /// Units that are taken now, for each check; empty as long as that is what the receipt says.
    balances: Vec<u64>,
}

/// Whose decision it is.
pub(super) enum Of {
    /// The layer's; its policies by their places.
    Layer(SmallVec<[usize; 4]>),
    /// The handler's, over a policy of its own.
    Handler(Box<(Policy, Decision)>),
}

impl Booking {
    pub(super) fn new(of: Of, receipt: Receipt) -> Self {
        Self { of, receipt, balances: Vec::new() }
    }

    pub(super) fn balance(&self, check: usize) -> u64 {
        self.balances.get(check).copied().unwrap_or_else(|| self.receipt.taken()[check].units)
    }

    pub(super) fn set_balance(&mut self, check: usize, units: u64) {
        if self.balances.is_empty() {
            self.balances = self.receipt.taken().iter().map(|taken| taken.units).collect();
        }
        self.balances[check] = units;
    }

    pub(super) fn decision<'a>(&'a self, shared: &'a Shared) -> &'a Decision {
        match &self.of {
            Of::Layer(_) => &shared.decision,
            Of::Handler(own) => &own.1,
        }
    }

    pub(super) fn policy<'a>(&'a self, gate: &'a Gate, check: usize) -> &'a Policy {
        match &self.of {
            Of::Layer(places) => &gate.policies[places[check]],
            Of::Handler(own) => &own.0,
        }
    }

    /// A receipt for the units one check has taken now; it holds no slot.
    pub(super) fn part(&self, check: usize) -> Receipt {
        let taken = Taken { units: self.balance(check), slot: 0, ..self.receipt.taken()[check].clone() };
        Receipt::new(self.receipt.store(), [taken])
    }

    /// What a check has taken after a charge: with what others had then, at most two capacities.
    pub(super) fn charged(&self, check: usize, outcome: &Outcome, units: u64) -> u64 {
        let balance = self.balance(check);
        let free = outcome.quota().capacity().saturating_add(outcome.remaining());
        let most = free.saturating_add(self.receipt.taken()[check].units);
        balance.saturating_add(units).min(most.max(balance))
    }

    pub(super) fn is_as_taken(&self) -> bool {
        self.receipt.taken().iter().zip(&self.balances).all(|(taken, balance)| taken.units == *balance)
    }
}
