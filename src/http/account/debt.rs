//! What a request owes to one counter.

use super::parts::Parts;
use super::wanted::Wanted;
use crate::core::quota::Algorithm;
use crate::http::gate::Gate;
use crate::store::{Applied, Change, Counter, Mode, Settlement, Settling, StoreId, Taken};
use crate::{Decision, Error, Outcome, Policy, Store};

/// What a request owes to one counter.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) of: Of,
    /// The check's place in its decision.
    pub(super) check: usize,
    store: StoreId,
    parts: Parts,
    /// Units that decisions took.
    cost: u64,
    /// Units of charges whose answers were lost: never charged again, nor given back.
    doubted: u64,
    pub(super) wanted: Wanted,
    /// A change whose answer is waited for is on its way: the next one depends on it.
    pub(super) is_busy: bool,
    /// The last change was made.
    pub(super) is_over: bool,
    /// What the store told of the counter after a change, and what it had of this debt then.
    after: Option<(Outcome, u64)>,
}

/// A policy that the handler checked, and what was decided.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) policy: Policy,
    pub(super) decision: Decision,
}

/// Whose decision it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The layer's; which of its policies.
    Layer(usize),
    /// The handler's; which of its checks.
    Handler(usize),
}

impl Of {
    /// Which of the handler's checks; `None` for the layer's.
    pub(super) fn handler(self) -> Option<usize> {
        match self {
            Self::Layer(_) => None,
            Self::Handler(place) => Some(place),
        }
    }
}

impl Debt {
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

    pub(super) fn policy<'a>(&self, gate: &'a Gate, checked: &'a [Checked]) -> &'a Policy {
        match self.of {
            Of::Layer(place) => &gate.policies[place],
            Of::Handler(place) => &checked[place].policy,
        }
    }

    /// Whether it is of the handler's checks, and owed to this counter of this store.
    pub(super) fn is_to(&self, store: StoreId, counter: &Counter) -> bool {
        self.of.handler().is_some() && self.store == store && self.parts.counter() == counter
    }

    /// The change that leads to what is to be owed. Units go back at the end.
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

    /// Whether another request like this one may be decided otherwise before its last change than after it.
    pub(super) fn matters_soon(&self, before: &Outcome) -> bool {
        let is_due = self.is_busy || self.due(true).is_some();
        let may_refuse = before.mode() == Mode::Enforce;
        may_refuse && is_due && self.least_remaining(before) < self.cost.max(1)
    }

    /// The least that was left since the decision, or is until the last change: when all is taken that a charge
    /// on its way asks for.
    fn least_remaining(&self, before: &Outcome) -> u64 {
        let after = self.after.as_ref().map_or(u64::MAX, |(after, _)| after.remaining());
        let units = if self.is_busy { self.wanted.most() } else { self.wanted.units() };
        before.remaining().min(after).min(self.shown_with(before, units).remaining())
    }

    pub(super) fn is_as_taken(&self) -> bool {
        self.wanted.units() == self.cost && self.after.is_none()
    }

    /// Hands a change to the store. Units that are given back are not owed from then on.
    pub(super) fn make(&mut self, change: Change, gate: &Gate) -> Settling {
        let units = match change {
            Change::Charge(units) => units,
            Change::Refund(units) => {
                let (receipt, changes) = self.parts.give_back(self.store, units);
                return gate.limits.store.settle(receipt, &changes);
            }
        };
        self.wanted.send();
        // If the store panics, nobody knows whether it charged them.
        let doubted = self.doubted;
        self.doubted = doubted.saturating_add(units);
        let settling =
            gate.limits.store.settle(self.parts.receipt_of_last(self.store), &[Settlement { check: 0, change }]);
        self.doubted = doubted;
        settling
    }

    /// Whether what may be changed later depends on what becomes of a change that was just made.
    pub(super) fn depends_on(&self, change: Change) -> bool {
        let is_in_line = self.parts.counter().quota.algorithm() == Algorithm::LeakyBucket;
        matches!(change, Change::Charge(_)) || is_in_line && self.parts.units() > 0
    }

    /// Learns what became of a change. What the store did not charge is not owed.
    pub(super) fn learn(&mut self, change: Change, applied: Result<Vec<Applied>, Error>) {
        let Ok(applied) = applied else {
            if let Change::Charge(units) = change {
                self.doubted = self.doubted.saturating_add(units);
            }
            return;
        };
        let last = applied.into_iter().next_back();
        if let Change::Charge(asked) = change {
            let (units, stamp) = last.as_ref().map_or((0, 0), |applied| (applied.units.min(asked), applied.stamp));
            self.wanted.cut(asked - units);
            self.parts.add(units, stamp);
        } else if let Some(applied) = &last {
            self.parts.restamp(applied.stamp);
        }
        if let Some(outcome) = last.and_then(|applied| applied.outcome) {
            self.after = Some((outcome, self.parts.units()));
        }
    }

    /// The outcome of the decision, as it is after the changes.
    pub(super) fn shown(&self, before: &Outcome) -> Outcome {
        self.shown_with(before, self.wanted.units())
    }

    /// The same, if so many units were owed.
    fn shown_with(&self, before: &Outcome, units: u64) -> Outcome {
        match &self.after {
            Some((after, taken)) => before.after(after).settled(*taken, units),
            None => before.settled(self.cost, units),
        }
    }
}
