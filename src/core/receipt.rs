//! Receipts of what a decision took, with which it is refunded or charged further.
//!
//! Each [`Decision`] comes with a [`Receipt`], which names the store that made it, so that stores around stores pass it
//! to the one it belongs to. A receipt can be settled once: it is not `Clone`, and settling consumes it.

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

/// The proof of the units that one decision took, and where; [`Store::settle`](crate::store::Store::settle) consumes it.
///
/// It is not `Clone`, as units can be refunded once only. What a dropped receipt took stays taken.
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
    /// The call that decided, if it decided several requests.
    call: Option<CallId>,
}

/// A decision, with the receipt to settle it by.
///
/// They are two values because a decision is cloned for all who read it, and a receipt is used once.
///
/// # Examples
///
/// A store that refuses all requests returns this one, without a wait:
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
    /// The receipt for what was taken: nothing, if the request was refused.
    pub receipt: Receipt,
}

impl StoreDecision {
    /// A decision, with the receipt for what was taken: an empty one, if the request was refused.
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
    /// How many units: 0 for a look, or for a check in shadow mode that did not fit.
    pub units: u64,
    /// The [floor](super::Check::floor) of the check.
    pub floor: u64,
    /// The time at which the store's state accounts for these units, in a unit of the store's own.
    pub stamp: u64,
}

impl ReceiptItem {
    /// Whether these units are slots that somebody has to release.
    pub(crate) fn holds_slots(&self) -> bool {
        self.units > 0 && self.counter.quota().facts().held
    }

    /// `units` taken from `counter`, with the stamp by which the store identifies them; without a floor.
    ///
    /// 0 units are those of a look, or of a check in shadow mode that did not fit. The stamp is in whatever measure of
    /// time the store has: no other code reads it.
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
    /// A receipt of `store` for what each check took, in the order of the checks; none after a refusal.
    pub fn new(store: StoreId, items: impl IntoIterator<Item = ReceiptItem>) -> Self {
        Self { store, items: items.into_iter().collect(), call: None }
    }

    /// A receipt for what the only check took.
    pub(crate) fn from_item(store: StoreId, item: ReceiptItem) -> Self {
        Self { store, items: SmallVec::from_buf([item]), call: None }
    }

    pub(crate) fn empty(store: StoreId) -> Self {
        Self { store, items: SmallVec::new(), call: None }
    }

    #[cfg(any(feature = "redis", test))]
    pub(crate) fn of_call(self, call: Option<CallId>) -> Self {
        Self { call, ..self }
    }

    pub(crate) fn call(&self) -> Option<CallId> {
        self.call
    }

    /// Returns the identity of the store that made the decision.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// Returns what each check took, in the order of the checks; nothing after a refusal.
    pub fn items(&self) -> &[ReceiptItem] {
        &self.items
    }
}
