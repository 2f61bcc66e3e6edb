//! What was taken, so that it can be given back.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::call::CallId;
use super::{Change, Counter, Decision, Outcome};

/// Which store made a decision; unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// A new identity, different from every other.
    #[allow(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Proof of what one allowed decision took, and where: spent by settling it.
///
/// It is neither `Clone` nor `Copy`, for what was taken can be given back once.
#[derive(Debug)]
#[must_use = "settle the receipt, so that slots are released"]
pub struct Receipt {
    store: StoreId,
    taken: SmallVec<[Taken; 1]>,
    call: Option<CallId>,
}

/// A decision, with the receipt that settles it.
///
/// They are two things because a decision is copied to whoever reads it, and a receipt is spent
/// once.
#[derive(Debug)]
pub struct Decided {
    /// What was decided.
    pub decision: Decision,
    /// What was taken: nothing if the decision is a refusal.
    pub receipt: Receipt,
}

/// What one check took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Where from.
    pub counter: Counter,
    /// How much: 0 for a look, or a shadow check that did not fit.
    pub units: u64,
    /// How many units the check left to others.
    pub floor: u64,
    /// The time the state gives these units, in the store's own measure.
    pub stamp: u64,
    /// The slot held, for algorithms that hold one, else 0.
    pub slot: u64,
}

impl Receipt {
    /// A receipt of `store` for what each check took, in the order of the checks.
    pub fn new(store: StoreId, taken: impl IntoIterator<Item = Taken>) -> Self {
        Self { store, taken: taken.into_iter().collect(), call: None }
    }

    /// A receipt for what the only check took.
    pub(crate) fn of_one(store: StoreId, taken: Taken) -> Self {
        Self { store, taken: SmallVec::from_buf([taken]), call: None }
    }

    /// A receipt for nothing.
    pub(crate) fn empty(store: StoreId) -> Self {
        Self { store, taken: SmallVec::new(), call: None }
    }

    /// The receipt as one of a call, if that decided several requests.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn of_call(self, call: Option<CallId>) -> Self {
        Self { call, ..self }
    }

    /// The call that decided, if it decided several requests.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Which store gave it.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// The receipt with what each check took changed, in the order of the checks.
    pub(crate) fn each_taken(mut self, change: impl FnMut(&mut Taken)) -> Self {
        self.taken.iter_mut().for_each(change);
        self
    }

    /// What each check took, in the order of the checks; nothing after a refusal.
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }
}

/// What became of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// How many units were charged or given back, rounded up: fewer than asked for where the store bounds
    /// a charge, or what was taken counts no longer.
    pub units: u64,
    /// The time the state gives to units that were charged, or to what is left of those that were taken: the
    /// [stamp](Taken::stamp) to settle them with.
    pub stamp: u64,
    /// What a look at the counter tells after it, if the store knows.
    pub outcome: Option<Outcome>,
}

impl Applied {
    /// So many units were charged or given back, in the store's own measure of time.
    pub fn new(units: u64, stamp: u64) -> Self {
        Self { units, stamp, outcome: None }
    }

    /// Adds what a look at the counter tells after it.
    #[must_use]
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }
}

/// A [`Change`] to one of a receipt's checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The check's place in the decision.
    pub check: usize,
    /// What changes.
    pub change: Change,
}

impl Settlement {
    /// What a receipt's earlier checks took.
    pub(crate) fn before<'a>(&self, receipt: &'a Receipt) -> &'a [Taken] {
        receipt.taken.get(..self.check).unwrap_or_default()
    }

    /// The change to make to what was taken, bounded by it; `None` if there is nothing to do.
    pub(crate) fn of<'a>(&self, receipt: &'a Receipt) -> Option<(&'a Taken, Change)> {
        let taken = receipt.taken.get(self.check)?;
        match self.change {
            Change::Refund(units) if units.min(taken.units) > 0 => {
                Some((taken, Change::Refund(units.min(taken.units))))
            }
            Change::Charge(units) if units > 0 => Some((taken, self.change)),
            _ => None,
        }
    }

    /// What became of each change; `make` makes those for which there is something to do, and is given what the
    /// earlier checks took as well.
    pub(crate) fn each(
        changes: &[Self],
        receipt: &Receipt,
        mut make: impl FnMut(&[Taken], &Taken, Change) -> Applied,
    ) -> Vec<Applied> {
        let each = changes.iter().map(|settlement| match settlement.of(receipt) {
            Some((taken, change)) => make(settlement.before(receipt), taken, change),
            None => Applied::new(0, receipt.taken.get(settlement.check).map_or(0, |taken| taken.stamp)),
        });
        each.collect()
    }
}
