//! A change to units that were taken: a refund, a further charge, a renewal, or a reset.
//!
//! It stands apart from receipts, as algorithms apply changes and do not use receipts.

use super::Ban;

/// A correction of what was taken, in units; a strike, or the end of a ban; or a reset of the counter.
///
/// # Examples
///
/// A refund by hand, outside of any decision:
///
/// ```
/// use tollgate::store::{Change, Counter};
/// use tollgate::{Key, MemoryStore, PolicyName, Quota, Store};
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
    /// Renews slots: those that were taken at the stamp count as taken now. What the store has lost of them is taken
    /// anew, also beyond the limit.
    ///
    /// Only slots of [`Quota::concurrency`](crate::Quota::concurrency) are renewed; of other counters it changes nothing.
    Renew(u64),
    /// Counts a strike against the key, which may begin a [ban](Ban) of it: a failure that is found later. Units stay as
    /// they are.
    Strike(Ban),
    /// Lifts the ban of the key: its strikes, and the lengths of its last bans, are forgotten too. Units stay as they
    /// are.
    Lift,
    /// Deletes the counter, so that its key starts anew; a ban stays. One that has nothing taken any more may still be
    /// there. It is made by [`Store::adjust`](crate::Store::adjust); in a settlement it changes nothing.
    Reset,
}
