//! Receipts: what a decision took, so that it can be refunded or charged further.
//!
//! A [`Receipt`] goes with each [`Decision`] and names the store that made it, so that stores around stores pass it to
//! the one it belongs to. Settling it applies [`Settlement`]s, each a [`Change`] to what one check took, and returns what
//! was [`Applied`]. A receipt can be settled once: it is not `Clone`, and settling consumes it.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::call::CallId;
use super::{Change, Counter, Decision, Outcome};

/// The identity of a store, unique in the process.
///
/// # Examples
///
/// ```
/// use tollgate::store::StoreId;
///
/// assert_ne!(StoreId::new(), StoreId::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

impl StoreId {
    /// A new identity, different from all others.
    #[allow(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The proof of what one decision took, and where; [`Store::settle`](crate::Store::settle) consumes it.
///
/// It is not `Clone`, as units can be refunded once only. What a dropped receipt took stays taken, slots included.
///
/// # Examples
///
/// ```
/// use tollgate::store::{Change, Check, Counter, Deadline, Settlement};
/// use tollgate::{Key, MemoryStore, PolicyName, Quota, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let (policy, key) = (PolicyName::try_from("rows")?, Key::new("user", "ada"));
/// let counter = Counter { policy, key, quota: Quota::fixed_window(100, std::time::Duration::from_secs(3_600)) };
///
/// let store = MemoryStore::new();
/// let decided = store.decide(&[Check::new(counter, 10)], Deadline::none()).wait().await?;
/// assert_eq!(decided.receipt.taken()[0].units, 10);
///
/// // It was 3 units in the end.
/// let refund = Settlement { check: 0, change: Change::Refund(7) };
/// let applied = store.settle(decided.receipt, &[refund]).wait().await?;
/// assert_eq!(applied[0].units, 7);
/// assert_eq!(applied[0].outcome.as_ref().map(|outcome| outcome.remaining()), Some(97));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "settle the receipt, so that slots are released"]
pub struct Receipt {
    store: StoreId,
    taken: SmallVec<[Taken; 1]>,
    /// The call that decided, if it decided several requests.
    call: Option<CallId>,
}

/// A decision, with the receipt to settle it by.
///
/// They are two values because a decision is cloned for all who read it, and a receipt is used once.
#[derive(Debug)]
pub struct Decided {
    /// The decision.
    pub decision: Decision,
    /// The receipt for what was taken: nothing, if the request was refused.
    pub receipt: Receipt,
}

/// The units that one check took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The counter they were taken from.
    pub counter: Counter,
    /// How many units: 0 for a look, or for a check in shadow mode that did not fit.
    pub units: u64,
    /// The [floor](super::Check::floor) of the check.
    pub floor: u64,
    /// The time at which the store's state accounts for these units, in a measure that only the store knows.
    pub stamp: u64,
    /// The slot that is held, for stores that hold one, else 0.
    pub slot: u64,
}

impl Receipt {
    /// A receipt of `store` for what each check took, in the order of the checks; none after a refusal.
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

    /// Sets the call that decided, if it decided several requests.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn of_call(self, call: Option<CallId>) -> Self {
        Self { call, ..self }
    }

    /// Returns the call that decided, if it decided several requests.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Returns the identity of the store that made the decision.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Changes what each check took, in the order of the checks.
    pub(crate) fn each_taken(mut self, change: impl FnMut(&mut Taken)) -> Self {
        self.taken.iter_mut().for_each(change);
        self
    }

    /// Returns what each check took, in the order of the checks; nothing after a refusal.
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }
}

/// The result of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// How many units were charged or refunded, rounded up: fewer than the change has where the store bounds a charge, or
    /// where units no longer count.
    pub units: u64,
    /// The time at which the store's state accounts for the units that were charged, or for those that are left after a
    /// refund: the [stamp](Taken::stamp) to settle them with.
    pub stamp: u64,
    /// The outcome of a look at the counter after the change, if the store knows it.
    pub outcome: Option<Outcome>,
}

impl Applied {
    /// A result of `units` that were charged or refunded, and their stamp in the store's own measure of time.
    pub fn new(units: u64, stamp: u64) -> Self {
        Self { units, stamp, outcome: None }
    }

    /// Sets the outcome of a look at the counter after the change.
    #[must_use]
    pub fn with_outcome(self, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }
}

/// A [`Change`] to what one check of a receipt took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The index of the check in the decision. A change to one that does not exist does nothing.
    pub check: usize,
    /// The change.
    pub change: Change,
}

impl Settlement {
    /// Returns what the checks before this one took.
    pub(crate) fn before<'a>(&self, receipt: &'a Receipt) -> &'a [Taken] {
        receipt.taken.get(..self.check).unwrap_or_default()
    }

    /// Returns what the check took and the change to make to it, with a refund bounded by that; `None` if there is
    /// nothing to do.
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

    /// Applies each change and returns the results; `make` applies those that have something to do, from what the checks
    /// before took, what this one took, and the change.
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
