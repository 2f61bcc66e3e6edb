//! The trait that every store implements, and every store around a store.
//!
//! It is the seam between what is limited and where it is counted. Layers use nothing else of a
//! store, so a store may be implemented outside of this crate.

use std::sync::Arc;

use super::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Decided, Receipt, Requirement, Settlement, Settling,
};
use crate::core::Error;

/// Decides whether requests may take what they cost, and keeps what was taken.
///
/// A store that combines calls, leases units, caches refusals or falls back on another is a store
/// around a store: it implements this trait and calls an inner one. Receipts name the store that
/// made the decision, so a wrapper can pass them to the right one. Methods must not block the
/// thread: what waits is a pending [`Answer`].
///
/// # Examples
///
/// A store around a store that counts decisions:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::store::{
///     Answer, Applied, Ask, Capabilities, Change, Check, Counter, Decided, Receipt, Requirement, Settlement, Settling,
/// };
/// use tollgate::{Error, MemoryStore, Store};
///
/// struct Counting<S> {
///     inner: S,
///     decisions: AtomicU64,
/// }
///
/// impl<S: Store> Store for Counting<S> {
///     fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
///         self.decisions.fetch_add(1, Ordering::Relaxed);
///         self.inner.decide(checks, ask)
///     }
///
///     fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
///         self.inner.settle(receipt, changes)
///     }
///
///     fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
///         self.inner.adjust(counter, change)
///     }
///
///     fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
///         self.inner.capabilities(requirements)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let store = Counting { inner: MemoryStore::new(), decisions: AtomicU64::new(0) };
/// let decided = store.decide(&[], Ask::default()).wait().await?;
/// assert!(decided.decision.is_allowed());
/// assert_eq!(store.decisions.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Decides all `checks` as one: every enforced check fits and all is taken, or nothing is.
    ///
    /// A decision whose source is [`Store`](crate::Source::Store) shows a layer that the store
    /// works; any other source does not. So a store that can decide without its server passes an ask for a
    /// [probe](super::AskMode::Probe) on to it.
    ///
    /// A store with a [budget](Capabilities::budget) returns by the end of it, or by the deadline if that
    /// is earlier: with an error if it cannot decide. A store without one may ignore the deadline.
    ///
    /// # Errors
    ///
    /// If no decision could be made. After several errors, layers do not call the store for a
    /// moment: see [`OnFailure`](crate::OnFailure). Errors that are [invalid](Error::is_invalid) do
    /// not count.
    ///
    /// The store makes each decision at most once, but a decision that failed may have taken its units all the same. If
    /// the connection was lost, they stay taken. After a timeout, a store that can refund them does so when the late
    /// reply arrives. If the store has no budget, and the layer's own timer ends the decision, its answer is dropped:
    /// see Cancellation.
    ///
    /// # Cancellation
    ///
    /// Dropping a pending answer is safe at any point: it never affects the decisions of others. If
    /// the decision was allowed, its units stay taken: the store cannot tell a client that disconnected
    /// from one that was served. Layers and limiters do not drop it if it may take slots of a
    /// [concurrency](crate::Quota::concurrency), and release them.
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>>;

    /// Makes `changes` to what a decision took, of which there is at least one. Returns the result of each, in their
    /// order.
    ///
    /// Slots of a [concurrency](crate::Quota::concurrency) are released by [`Change::Refund`] and kept from
    /// expiring by [`Change::Renew`], in settlements with receipts of their own. Where a store makes no
    /// renewals, slots that are held for longer than a life expire.
    ///
    /// Never blocks nor panics, and may be called from `Drop`; what has to be sent is sent in the background,
    /// once. A receipt of another store is ignored. The answer is ready in a bounded time, even if
    /// only with an error: requests and slots that wait for it are kept until then.
    ///
    /// [`Change::Renew`](super::Change::Renew) comes again and again while a request holds slots of a
    /// [concurrency](crate::Quota::concurrency). A store that does not know it loses them after a life,
    /// and should then [refuse](Self::capabilities) such quotas.
    ///
    /// # Errors
    ///
    /// If the outcome of the changes is not known: they may have been made or not.
    ///
    /// # Cancellation
    ///
    /// The changes are made whether or not the answer is waited for.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling;

    /// Changes a counter outside any decision: a refund by support staff, a charge found later, a
    /// [reset](Change::Reset).
    ///
    /// # Errors
    ///
    /// If the store could not do it, or did not reply in time, in which case the change may have
    /// been made.
    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>>;

    /// Returns what the store can do, if it can do all that policies of one layer require, one requirement a policy.
    ///
    /// It is called when policies are given to a layer or limiter, and returns at once; without requirements it always
    /// succeeds. By default there is neither a budget nor an identity, and all is supported but
    /// [bans](super::Check::ban), as a store that does not know them would ignore them. A store around a store calls the
    /// inner one.
    ///
    /// # Errors
    ///
    /// If it cannot: the message names the policy, and what to change.
    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Capabilities::without_bans(requirements)
    }
}

impl Capabilities {
    /// Returns those of a store, whatever policies require.
    pub(crate) fn of(store: &(impl Store + ?Sized)) -> Self {
        store.capabilities(&[]).unwrap_or_default()
    }
}

/// What a pointer to a store does is what the store does.
macro_rules! by_pointer {
    ($($pointer:ident),+) => {$(
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
                (**self).decide(checks, ask)
            }

            fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
                (**self).settle(receipt, changes)
            }

            fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
                (**self).adjust(counter, change)
            }

            fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
                (**self).capabilities(requirements)
            }
        }
    )+};
}

by_pointer!(Arc, Box);
