//! Settling receipts: each [`Settlement`] is a change to the units of one check, each [`ChangeResult`] its result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Ban, Outcome, Receipt, ReceiptItem};

/// A correction of the units taken, a strike, the end of a ban, or a reset of the counter.
///
/// # Examples
///
/// A refund by hand, outside of any decision:
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Change, Counter, Store};
/// use tollgate::{Key, MemoryStore, Quota};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let (policy, key) = (PolicyName::try_from("rows")?, Key::new("user", "ada"));
/// let counter = Counter::new(policy, key, Quota::fixed_window(100, std::time::Duration::from_secs(3_600)));
///
/// let store = MemoryStore::new();
/// let charged = store.adjust(&counter, Change::Charge(30)).wait().await?;
/// assert_eq!(charged.units, 30);
/// let refunded = store.adjust(&counter, Change::Refund(50)).wait().await?;
/// assert_eq!(refunded.units, 30, "no more than was taken");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Refunds units, at most as many as were taken.
    Refund(u64),
    /// Charges further units. A counter may go past its limit, by at most one more capacity.
    Charge(u64),
    /// Renews slots: slots taken at the stamp count as taken now. Slots that the store has lost are taken again, even
    /// beyond the limit.
    ///
    /// Only slots of [`Quota::concurrency`](crate::Quota::concurrency) are renewed. Other counters do not change.
    Renew(u64),
    /// Counts a strike against the key, which may begin a [ban](Ban) of it: a failure that is found later. Units stay
    /// as they are.
    Strike(Ban),
    /// Lifts the ban of the key: its strikes, and the lengths of its last bans, are forgotten too. Units stay as they
    /// are.
    Lift,
    /// Deletes the counter, so that its key starts from 0. A ban stays. A counter from which nothing is taken any more
    /// may remain. [`Store::adjust`](crate::store::Store::adjust) applies it. In a settlement it changes nothing.
    Reset,
}

/// The result of a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeResult {
    /// Number of units charged or refunded, rounded up: fewer than in the change where the store bounds a charge, or
    /// where units no longer count.
    ///
    /// For a renewal, the slots that the store had not lost. For a strike, 1 if it counted. For the end of a ban, 1 if
    /// the store had strikes or a ban of the key. For a reset, 1 if there was a counter.
    pub units: u64,
    /// The time at which the store's state accounts for the units that were charged or renewed, or for those that are
    /// left after a refund: the [stamp](ReceiptItem::stamp) to settle them with.
    pub stamp: u64,
    /// The outcome of a peek at the counter after the change, if the store returns it.
    pub outcome: Option<Outcome>,
    /// Time for which the key is banned from now on, after a strike.
    pub banned_for: Option<Duration>,
}

impl ChangeResult {
    /// Creates a result of `units` charged or refunded, rounded up, and the stamp by which to settle them, in the
    /// store's own unit of time.
    pub fn new(units: u64, stamp: u64) -> Self {
        Self { units, stamp, outcome: None, banned_for: None }
    }

    /// Sets the outcome of a peek at the counter after the change.
    #[must_use]
    pub fn outcome(self, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }

    /// Sets how long the key is still banned after a strike.
    #[must_use]
    pub fn banned(self, left: Duration) -> Self {
        Self { banned_for: Some(left), ..self }
    }

    /// Returns `true` if the ban began with this strike: during a ban none counts.
    pub fn ban_began(&self) -> bool {
        self.banned_for.is_some() && self.units > 0
    }
}

/// A [`Change`] to the units that one check of a receipt took, or to the ban of its key.
///
/// [`Receipt`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Settlement {
    /// The index of the check in the decision. A change to one that does not exist does nothing.
    pub check: usize,
    /// The change.
    pub change: Change,
}

impl Settlement {
    /// Creates a change to the units that the check of this index took, where 0 is the first check of the decision.
    pub fn new(check: usize, change: Change) -> Self {
        Self { check, change }
    }

    pub(crate) fn refunds(receipt: &Receipt) -> SmallVec<[Self; 2]> {
        let taken = receipt.items().iter().enumerate().filter(|(_, taken)| taken.units > 0 && !taken.holds_slots());
        taken.map(|(check, taken)| Self::new(check, Change::Refund(taken.units))).collect()
    }

    pub(crate) fn nothing(&self, receipt: &Receipt) -> ChangeResult {
        ChangeResult::new(0, receipt.items().get(self.check).map_or(0, |taken| taken.stamp))
    }

    pub(crate) fn before<'a>(&self, receipt: &'a Receipt) -> &'a [ReceiptItem] {
        receipt.items().get(..self.check).unwrap_or_default()
    }

    /// Bounds a refund or a renewal by the units taken, or `None` if there is nothing to do.
    pub(crate) fn bounded<'a>(&self, receipt: &'a Receipt) -> Option<(&'a ReceiptItem, Change)> {
        let taken = receipt.items().get(self.check)?;
        match self.change {
            Change::Refund(units) if units.min(taken.units) > 0 => {
                Some((taken, Change::Refund(units.min(taken.units))))
            }
            Change::Charge(units) if units > 0 => Some((taken, self.change)),
            Change::Renew(units) if units.min(taken.units) > 0 && taken.counter.quota().facts().held => {
                Some((taken, Change::Renew(units.min(taken.units))))
            }
            Change::Strike(_) | Change::Lift => Some((taken, self.change)),
            _ => None,
        }
    }

    pub(crate) fn each(
        changes: &[Self],
        receipt: &Receipt,
        mut make: impl FnMut(&[ReceiptItem], &ReceiptItem, Change) -> ChangeResult,
    ) -> Vec<ChangeResult> {
        let each = changes.iter().map(|settlement| match settlement.bounded(receipt) {
            Some((taken, change)) => make(settlement.before(receipt), taken, change),
            None => settlement.nothing(receipt),
        });
        each.collect()
    }
}

/// Calls a closure that may panic. While the thread unwinds, a panic is caught and there is no result, because a second
/// panic would end the process.
pub(crate) fn in_drop<R>(call: impl FnOnce() -> R) -> Option<R> {
    if thread::panicking() { catch_unwind(AssertUnwindSafe(call)).ok() } else { Some(call()) }
}
