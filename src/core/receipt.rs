//! Receipts of the units that a decision took, by which they are refunded or charged further.
//!
//! A [`Receipt`] names the store that made it, so that wrapper stores pass it to the right store. It can be settled
//! once: it is not `Clone`, and settling consumes it.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::call::CallId;
use super::{Counter, Decision};

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

/// The proof of the units that one decision took, and where; [`Store::settle`](crate::store::Store::settle) consumes
/// it.
///
/// It is not `Clone`, because units can be refunded only once. The units of a dropped receipt stay taken.
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Ask, Change, Check, Counter, Settlement, Store};
/// use tollgate::{Key, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let (policy, key) = (PolicyName::try_from("rows")?, Key::new("user", "ada"));
/// let counter = Counter::new(policy, key, Quota::fixed_window(100, std::time::Duration::from_secs(3_600)));
///
/// let store = MemoryStore::new();
/// let decided = store.decide(&[Check::new(counter, 10)], Ask::default()).wait().await?;
/// assert_eq!(decided.receipt.items()[0].units, 10);
///
/// // It was 3 units in the end.
/// let refund = Settlement::new(0, Change::Refund(7));
/// let applied = store.settle(decided.receipt, &[refund]).wait().await?;
/// assert_eq!(applied[0].units, 7);
/// assert_eq!(applied[0].outcome.as_ref().map(|outcome| outcome.remaining()), Some(97));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Receipt {
    store: StoreId,
    items: SmallVec<[ReceiptItem; 1]>,
    call: Option<CallId>,
}

/// A decision, with the receipt to settle it by.
///
/// They are two values because a decision is cloned for all its readers, and a receipt is used once.
///
/// # Examples
///
/// A store that denies all requests without a wait returns:
///
/// ```
/// use tollgate::store::{Check, MaybeFuture, Receipt, StoreDecision, StoreId};
/// use tollgate::{Decision, Error, Outcome, Source};
///
/// fn refuse(id: StoreId, checks: &[Check]) -> MaybeFuture<Result<StoreDecision, Error>> {
///     let outcomes = checks.iter().map(|check| Outcome::denied(check, 0, None));
///     MaybeFuture::Ready(Ok(StoreDecision::new(Decision::new(outcomes, Source::Store), Receipt::new(id, []))))
/// }
/// # let _ = refuse(StoreId::new(), &[]);
/// ```
#[derive(Debug)]
#[must_use = "a decision that is not read limits nothing"]
#[non_exhaustive]
pub struct StoreDecision {
    /// The decision.
    pub decision: Decision,
    /// The receipt for the units taken: empty if the request was denied.
    pub receipt: Receipt,
}

impl StoreDecision {
    /// Combines a decision with the receipt for the units taken, which is empty if the request was denied.
    pub fn new(decision: Decision, receipt: Receipt) -> Self {
        Self { decision, receipt }
    }
}

/// The units that one check took.
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Counter, Receipt, ReceiptItem, StoreId};
/// use tollgate::{Key, Quota};
///
/// let counter = Counter::new(PolicyName::try_from("rows")?, Key::new("user", "ada"), Quota::per_hour(100));
/// // 7 units, for which the store's state accounts at 1,000 in its own measure of time.
/// let taken = ReceiptItem::new(counter, 7, 1_000).floor(50);
/// let receipt = Receipt::new(StoreId::new(), [taken]);
/// assert_eq!(receipt.items()[0].units, 7);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct ReceiptItem {
    /// The counter they were taken from.
    pub counter: Counter,
    /// Number of units: 0 for a peek, or for a check in shadow mode that did not fit.
    pub units: u64,
    /// The [floor](super::Check::floor) of the check.
    pub floor: u64,
    /// The time at which the store's state accounts for these units, in a unit of the store's own.
    pub stamp: u64,
}

impl ReceiptItem {
    pub(crate) fn holds_slots(&self) -> bool {
        self.units > 0 && self.counter.quota().facts().held
    }

    /// Creates an item of `units` taken from `counter` without a floor. `stamp` identifies the units in the store.
    ///
    /// A peek, and a check in shadow mode that did not fit, take 0 units. The stamp may have any unit: only the store
    /// reads it.
    pub fn new(counter: Counter, units: u64, stamp: u64) -> Self {
        Self { counter, units, floor: 0, stamp }
    }

    /// Sets how many units were taken.
    pub fn units(self, units: u64) -> Self {
        Self { units, ..self }
    }

    /// Sets the [floor](super::Check::floor) of the check in units, by default 0.
    pub fn floor(self, floor: u64) -> Self {
        Self { floor, ..self }
    }

    /// Sets the stamp by which the store identifies the units, in the store's own measure of time.
    pub fn stamp(self, stamp: u64) -> Self {
        Self { stamp, ..self }
    }
}

impl Receipt {
    /// Creates a receipt of `store` for the units that each check took, in the order of the checks; empty after a
    /// denial.
    pub fn new(store: StoreId, items: impl IntoIterator<Item = ReceiptItem>) -> Self {
        Self { store, items: items.into_iter().collect(), call: None }
    }

    pub(crate) fn from_items(store: StoreId, items: SmallVec<[ReceiptItem; 1]>) -> Self {
        Self { store, items, call: None }
    }

    pub(crate) fn empty(store: StoreId) -> Self {
        Self { store, items: SmallVec::new(), call: None }
    }

    #[cfg(any(feature = "redis", test))]
    pub(crate) fn set_call(&mut self, call: Option<CallId>) {
        self.call = call;
    }

    pub(crate) fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Returns the identity of the store that made the decision.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns the units that each check took, in the order of the checks; empty after a denial.
    pub fn items(&self) -> &[ReceiptItem] {
        &self.items
    }
}
