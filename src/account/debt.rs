//! What a request owes to one counter.

use smallvec::SmallVec;

use super::owed::Asked;
use crate::gate::Gate;
use crate::store::{Applied, Change, Receipt, Settlement, Settling, StoreId, Taken};
use crate::{Error, Outcome, Policy, Store};

/// What a request owes to one counter.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) of: Of,
    /// The check's place in its decision.
    pub(super) check: usize,
    store: StoreId,
    /// What the store has taken, in the order in which it did: the decision's units and what was charged since.
    parts: SmallVec<[Taken; 1]>,
    /// Units that the decision took.
    cost: u64,
    /// Units of charges whose answers were lost: never charged again, nor given back.
    doubted: u64,
    /// What is to be owed.
    pub(super) wanted: u64,
    /// A change whose answer is waited for is on its way: the next one depends on it.
    pub(super) is_busy: bool,
    /// What the store does not charge of the one on its way is not owed: as long as nothing else was said
    /// meanwhile.
    counts_cut: bool,
    /// The last change was made.
    pub(super) is_over: bool,
    /// What the store told of the counter after a change, and what it had of this debt then.
    after: Option<(Outcome, u64)>,
}

/// Whose decision it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The layer's; which of its policies.
    Layer(usize),
    /// The handler's; which of those it asked.
    Handler(usize),
}

impl Of {
    /// Which of those that the handler asked; `None` for the layer's.
    pub(super) fn handler(self) -> Option<usize> {
        match self {
            Self::Layer(_) => None,
            Self::Handler(place) => Some(place),
        }
    }
}

impl Debt {
    pub(super) fn new(of: Of, check: usize, store: StoreId, taken: &Taken) -> Self {
        let parts = SmallVec::from_buf([Taken { slot: 0, ..taken.clone() }]);
        Self {
            of,
            check,
            store,
            parts,
            cost: taken.units,
            doubted: 0,
            wanted: taken.units,
            is_busy: false,
            counts_cut: true,
            is_over: false,
            after: None,
        }
    }

    pub(super) fn policy<'a>(&self, gate: &'a Gate, asked: &'a [Asked]) -> &'a Policy {
        match self.of {
            Of::Layer(place) => &gate.policies[place],
            Of::Handler(place) => &asked[place].policy,
        }
    }

    /// Sets what is to be owed, whatever becomes of a charge on its way.
    pub(super) fn set(&mut self, wanted: u64) {
        self.counts_cut &= wanted == self.wanted;
        self.wanted = wanted;
    }

    /// Units that the store has of it.
    fn taken(&self) -> u64 {
        self.parts.iter().map(|part| part.units).sum()
    }

    /// The change that leads to what is to be owed. Units go back at the end, those first that were taken
    /// last.
    pub(super) fn due(&self, is_ended: bool) -> Option<Change> {
        let (taken, last) = (self.taken(), self.parts.last()?.units);
        if self.is_busy || self.is_over {
            return None;
        }
        let perhaps = taken.saturating_add(self.doubted);
        if self.wanted > perhaps {
            return Some(Change::Charge(self.wanted - perhaps));
        }
        (is_ended && self.wanted < taken).then(|| Change::Refund((taken - self.wanted).min(last)))
    }

    /// Whether another request like this one may be decided otherwise before its last change than after it.
    pub(super) fn matters_soon(&self, before: &Outcome) -> bool {
        let is_due = self.is_busy || self.due(true).is_some();
        is_due && before.remaining().min(self.shown(before).remaining()) < self.cost.max(1)
    }

    pub(super) fn is_as_taken(&self) -> bool {
        self.wanted == self.cost && self.after.is_none()
    }

    /// Hands a change to the store. Units that are given back are not owed from then on.
    pub(super) fn make(&mut self, change: Change, gate: &Gate) -> Settling {
        let last = self.parts.last_mut().expect("the first part is never removed");
        self.counts_cut = true;
        let settling = gate.store.settle(Receipt::new(self.store, [last.clone()]), &[Settlement { check: 0, change }]);
        if let Change::Refund(units) = change {
            last.units -= units;
            if last.units == 0 && self.parts.len() > 1 {
                self.parts.pop();
            }
        }
        settling
    }

    /// Learns what became of a change: of so many units to charge, or of units given back. What the store
    /// did not charge is not owed.
    pub(super) fn learn(&mut self, charge: Option<u64>, applied: Result<Option<Applied>, Error>) {
        let Ok(applied) = applied else {
            self.doubted = self.doubted.saturating_add(charge.unwrap_or_default());
            return;
        };
        let (units, stamp) = applied.as_ref().map_or((0, 0), |applied| (applied.units, applied.stamp));
        if let (Some(asked), Some(last)) = (charge, self.parts.last()) {
            let units = units.min(asked);
            if self.counts_cut {
                self.wanted = self.wanted.saturating_sub(asked - units);
            }
            if units > 0 {
                let part = Taken { units, stamp, ..last.clone() };
                self.parts.push(part);
            }
        }
        if let Some(outcome) = applied.and_then(|applied| applied.outcome) {
            self.after = Some((outcome, self.taken()));
        }
    }

    /// The outcome of the decision, as it is after the changes.
    pub(super) fn shown(&self, before: &Outcome) -> Outcome {
        match &self.after {
            Some((after, taken)) => before.after(after).settled(*taken, self.wanted),
            None => before.settled(self.cost, self.wanted),
        }
    }
}
