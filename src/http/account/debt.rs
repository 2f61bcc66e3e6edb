//! The debt of a request to one counter.
//!
//! A debt moves from the units that the store has taken to those wanted, by one change at a time: while a charge is in
//! flight, nothing else is sent, as the store may cut it. If the result of a charge is lost, its units are *doubted*:
//! they are neither charged again nor refunded, so that an error never admits a client to more.

use super::parts::Parts;
use super::wanted::Wanted;
use crate::core::algorithm::Refund;
use crate::core::{Decision, Error, Outcome};
use crate::http::gate::Gate;
use crate::http::policy::Policy;
use crate::store::{Applied, Change, Counter, Mode, Settlement, Settling, Store, StoreId, Taken};

/// The debt of a request to one counter, in units.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) of: Of,
    /// The place of the check in its decision.
    pub(super) check: usize,
    store: StoreId,
    /// The units that the store has taken.
    parts: Parts,
    /// Units that decisions took.
    cost: u64,
    /// Units of charges whose results were lost.
    doubted: u64,
    /// The units that are to be taken.
    pub(super) wanted: Wanted,
    /// Whether a change is in flight that the next one depends on.
    pub(super) is_busy: bool,
    /// Whether the last change was sent.
    pub(super) is_over: bool,
    /// The outcome that the store returned with the latest change, and the units of this debt that it had taken by
    /// then.
    after: Option<(Outcome, u64)>,
}

/// A policy that the handler checked, and the decision.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) policy: Policy,
    pub(super) decision: Decision,
}

/// The origin of a debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The layer's decision, by the policy at this place of the gate.
    Layer(usize),
    /// The handler's check of this number.
    Handler(usize),
}

impl Of {
    /// Returns the number of the handler's check; `None` for the layer's decision.
    pub(super) fn handler(self) -> Option<usize> {
        match self {
            Self::Layer(_) => None,
            Self::Handler(place) => Some(place),
        }
    }
}

impl Debt {
    /// Creates the debt of what a decision took.
    pub(super) fn new(of: Of, check: usize, store: StoreId, taken: &Taken) -> Self {
        Self {
            of,
            check,
            store,
            parts: Parts::new(taken),
            cost: taken.units,
            doubted: 0,
            wanted: Wanted::new(taken.units),
            is_busy: false,
            is_over: false,
            after: None,
        }
    }

    /// Adds what another decision of the handler took from the same counter.
    pub(super) fn add(&mut self, taken: &Taken) {
        self.cost += taken.units;
        self.wanted.add(taken.units);
        self.parts.add(taken.units, taken.stamp);
    }

    /// Returns the policy of the debt.
    pub(super) fn policy<'a>(&self, gate: &'a Gate, checked: &'a [Checked]) -> &'a Policy {
        match self.of {
            Of::Layer(place) => &gate.policies[place],
            Of::Handler(place) => &checked[place].policy,
        }
    }

    /// Returns whether it comes from a check of the handler, by this counter of this store.
    pub(super) fn is_to(&self, store: StoreId, counter: &Counter) -> bool {
        self.of.handler().is_some() && self.store == store && self.parts.counter() == counter
    }

    /// Returns the change that leads to what is wanted, if it can be sent now. Refunds wait for the end.
    pub(super) fn due(&self, is_ended: bool) -> Option<Change> {
        if self.is_busy || self.is_over {
            return None;
        }
        let (taken, wanted) = (self.parts.units(), self.wanted.units());
        let perhaps = taken.saturating_add(self.doubted);
        if wanted > perhaps {
            return Some(Change::Charge(wanted - perhaps));
        }
        (is_ended && wanted < taken).then(|| Change::Refund(taken - wanted))
    }

    /// Returns whether another request like this one may be decided differently before its last change than after it.
    pub(super) fn matters_soon(&self, before: &Outcome) -> bool {
        let is_due = self.is_busy || self.due(true).is_some();
        let may_refuse = before.mode() == Mode::Enforce;
        may_refuse && is_due && self.least_remaining(before) < self.cost.max(1)
    }

    /// Returns the least that was left since the decision, or may be left until the last change: if a charge in flight
    /// is taken in full.
    fn least_remaining(&self, before: &Outcome) -> u64 {
        let after = self.after.as_ref().map_or(u64::MAX, |(after, _)| after.remaining());
        let units = if self.is_busy { self.wanted.most() } else { self.wanted.units() };
        before.remaining().min(after).min(self.shown_with(before, units).remaining())
    }

    /// Returns whether the debt is as it was decided, and the store has returned nothing newer.
    pub(super) fn is_as_taken(&self) -> bool {
        self.wanted.units() == self.cost && self.after.is_none()
    }

    /// Sends a change to the store. Refunded units leave the debt at once.
    pub(super) fn make(&mut self, change: Change, gate: &Gate) -> Settling {
        let units = match change {
            Change::Charge(units) => units,
            Change::Refund(units) => {
                let (receipt, changes) = self.parts.refund(self.store, units);
                return gate.limits.store.settle(receipt, &changes);
            }
            // Neither slots nor strikes have a debt.
            Change::Renew(_) | Change::Strike(_) | Change::Lift | Change::Reset => 0,
        };
        self.wanted.send();
        // If the store panics, it is unknown whether it charged them.
        let doubted = self.doubted;
        self.doubted = doubted.saturating_add(units);
        let settling = gate.limits.store.settle(self.parts.receipt_of_last(self.store), &[Settlement::new(0, change)]);
        self.doubted = doubted;
        settling
    }

    /// Returns whether later changes depend on the result of one that was just sent.
    pub(super) fn depends_on(&self, change: Change) -> bool {
        let is_in_line = self.parts.counter().quota().facts().refund == Refund::LastInLine;
        matches!(change, Change::Charge(_)) || is_in_line && self.parts.units() > 0
    }

    /// Applies the result of a change. Units that the store did not charge leave the debt.
    pub(super) fn apply(&mut self, change: Change, applied: Result<Vec<Applied>, Error>) {
        let Ok(applied) = applied else {
            if let Change::Charge(units) = change {
                self.doubted = self.doubted.saturating_add(units);
            }
            return;
        };
        let last = applied.into_iter().next_back();
        if let Change::Charge(sent) = change {
            let (units, stamp) = last.as_ref().map_or((0, 0), |applied| (applied.units.min(sent), applied.stamp));
            self.wanted.cut(sent - units);
            self.parts.add(units, stamp);
        } else if let Some(applied) = &last {
            self.parts.restamp(applied.stamp);
        }
        if let Some(outcome) = last.and_then(|applied| applied.outcome) {
            self.after = Some((outcome, self.parts.units()));
        }
    }

    /// Returns the outcome of the decision as it is after the changes.
    pub(super) fn shown(&self, before: &Outcome) -> Outcome {
        self.shown_with(before, self.wanted.units())
    }

    /// Returns the outcome as if the debt were `units`.
    fn shown_with(&self, before: &Outcome, units: u64) -> Outcome {
        match &self.after {
            Some((after, taken)) => before.after(after).settled(*taken, units),
            None => before.settled(self.cost, units),
        }
    }
}
