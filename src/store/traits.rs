//! The trait that every store implements, and every store around a store.
//!
//! It is the seam between what is limited and where it is counted. Layers use nothing else of a
//! store, so a store may be implemented outside of this crate; most methods have defaults that are
//! right for a store that decides each request by itself.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Requirement, Settlement, Settling, StoreId,
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
/// use std::time::Duration;
/// use tollgate::store::{
///     Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Requirement, Settlement,
///     Settling, StoreId,
/// };
/// use tollgate::{Error, MemoryStore, Store};
///
/// struct Counting<S> {
///     inner: S,
///     decisions: AtomicU64,
/// }
///
/// impl<S: Store> Store for Counting<S> {
///     fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
///         self.decisions.fetch_add(1, Ordering::Relaxed);
///         self.inner.decide(checks, deadline)
///     }
///
///     fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
///         self.inner.probe(checks, deadline)
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
///     fn reset(&self, counter: &Counter) -> Answer<Result<bool, Error>> {
///         self.inner.reset(counter)
///     }
///
///     fn budget(&self) -> Option<Duration> {
///         self.inner.budget()
///     }
///
///     fn recall(&self, checks: &[Check]) -> Option<Decided> {
///         self.inner.recall(checks)
///     }
///
///     fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
///         self.inner.supports(requirements)
///     }
///
///     fn id(&self) -> Option<StoreId> {
///         self.inner.id()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let store = Counting { inner: MemoryStore::new(), decisions: AtomicU64::new(0) };
/// let decided = store.decide(&[], Deadline::none()).wait().await?;
/// assert!(decided.decision.is_allowed());
/// assert_eq!(store.decisions.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
pub trait Store: Send + Sync + 'static {
    /// Decides all `checks` as one: every enforced check fits and all is taken, or nothing is.
    ///
    /// A decision whose source is [`Store`](crate::Source::Store) shows a layer that the store
    /// works; any other source does not, so a store that can decide without its
    /// server implements [`probe`](Self::probe) too.
    ///
    /// A store with a [budget](Self::budget) returns by the end of it, or by the deadline if that
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
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>>;

    /// Decides as [`decide`](Self::decide) does, but always by calling the server, even if this process could decide by
    /// itself.
    ///
    /// After a failure, a layer uses the decision of a single request to find out whether the server is available
    /// again. A decision from memory would not show that, and for a hot key there may be no other kind. So a wrapper
    /// that decides by itself must pass a probe on to its inner store. The default calls `decide`.
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.decide(checks, deadline)
    }

    /// Makes `changes` to what a decision took. Returns the result of each, in their order.
    ///
    /// Slots of a [concurrency](crate::Quota::concurrency) are released by [`Change::Refund`] and kept from
    /// expiring by [`Change::Renew`], in settlements with receipts of their own. Where a store makes no
    /// renewals, slots that are held for longer than a life expire.
    ///
    /// Never blocks and may be called from `Drop`; what has to be sent is sent in the background,
    /// once. A receipt of another store is ignored. The answer is ready in a bounded time, even if
    /// only with an error: requests that wait for it are kept until then.
    ///
    /// [`Change::Renew`](super::Change::Renew) comes again and again while a request holds slots of a
    /// [concurrency](crate::Quota::concurrency). A store that does not know it loses them after a life,
    /// and [`supports`](Self::supports) should then refuse such quotas.
    ///
    /// # Errors
    ///
    /// If the outcome of the changes is not known: they may have been made or not.
    ///
    /// # Cancellation
    ///
    /// The changes are made whether or not the answer is waited for.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling;

    /// Changes a counter outside any decision: a refund by support staff, a charge found later.
    ///
    /// # Errors
    ///
    /// If the store could not do it, or did not reply in time, in which case the change may have
    /// been made.
    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>>;

    /// Deletes a counter, so that its key starts anew. Returns whether there was one.
    ///
    /// One that has nothing taken any more may still be there.
    ///
    /// # Errors
    ///
    /// If the store could not do it, or did not reply in time, in which case the counter may have
    /// been deleted.
    fn reset(&self, counter: &Counter) -> Answer<Result<bool, Error>>;

    /// Returns the time within which every decision is made, if the store limits it by itself.
    ///
    /// Unless a layer is given a [budget](crate::RateLimitLayer::budget) of its own, it is this
    /// one. If the layer's is shorter, each decision gets a [deadline](Self::decide), which a store
    /// with a budget keeps as well. Without one, which is the default, the layer limits by a timer
    /// of its own what has to be waited for.
    fn budget(&self) -> Option<Duration> {
        None
    }

    /// Returns the refusal of `checks`, if it is cached in this process. Takes nothing.
    ///
    /// Layers call it before they look keys or quotas up for a request, and look at its checks
    /// (with a cost of 0) if there is none. By default there is none. A store around a store that
    /// decides all by the inner one returns the inner one's.
    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        let _ = checks;
        None
    }

    /// Checks that the store can do all that policies of one layer require, one requirement a
    /// policy.
    ///
    /// It is called when policies are given to a layer or limiter, and returns at once. By default
    /// all is supported but [bans](super::Check::ban), as a store that does not know them would
    /// ignore them. A store around a store calls the inner one.
    ///
    /// # Errors
    ///
    /// If it cannot: the message names the policy, and what to change.
    fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        without_bans(requirements)
    }

    /// Returns the identity of the counters: stores with the same one count together. `None`, the default, where that
    /// is not known. A store around a store calls the inner one.
    fn id(&self) -> Option<StoreId> {
        None
    }
}

/// Returns an error if policies and bans together are more than one decision may have: bans count like checks.
pub(super) fn with_few_bans(requirements: &[Requirement<'_>], most: usize) -> Result<(), Error> {
    let bans = requirements.iter().filter(|requirement| requirement.bans).count();
    if bans == 0 || requirements.len() + bans <= most {
        return Ok(());
    }
    let policies = requirements.len();
    Err(Error::invalid(format!(
        "{policies} policies, {bans} of them with a ban, are too many for one decision: give at most {most} together"
    )))
}

/// Returns an error if a policy has a ban.
pub(super) fn without_bans(requirements: &[Requirement<'_>]) -> Result<(), Error> {
    match requirements.iter().find(|requirement| requirement.bans) {
        Some(Requirement { policy, .. }) => Err(Error::invalid(format!(
            "policy {:?} has a ban, which this store does not have: leave it out, or choose another store",
            policy.as_str()
        ))),
        None => Ok(()),
    }
}

/// What a pointer to a store does is what the store does.
macro_rules! by_pointer {
    ($($pointer:ident),+) => {$(
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
                (**self).decide(checks, deadline)
            }

            fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
                (**self).probe(checks, deadline)
            }

            fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
                (**self).settle(receipt, changes)
            }

            fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
                (**self).adjust(counter, change)
            }

            fn reset(&self, counter: &Counter) -> Answer<Result<bool, Error>> {
                (**self).reset(counter)
            }

            fn budget(&self) -> Option<Duration> {
                (**self).budget()
            }

            fn recall(&self, checks: &[Check]) -> Option<Decided> {
                (**self).recall(checks)
            }

            fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
                (**self).supports(requirements)
            }

            fn id(&self) -> Option<StoreId> {
                (**self).id()
            }
        }
    )+};
}

by_pointer!(Arc, Box);
