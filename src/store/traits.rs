//! The trait that every store and every wrapper implements.
//!
//! Layers use nothing else of a store, so that a store may be implemented outside of this crate.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Requirement, Settlement, Settling, StoreDecision,
    StoreId,
};
use crate::core::Error;

/// Decides whether requests may take their cost, and keeps what was taken.
///
/// A store that combines calls, leases units, caches denials or falls back on another is a wrapper: it implements this
/// trait and calls an inner store. Receipts name the store that made the decision, so that a wrapper can pass them to
/// the right one. Methods must not block the thread: a decision that waits is a pending [`MaybeFuture`].
///
/// # Examples
///
/// A wrapper that counts decisions:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::store::{
///     Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Requirement, Settlement, Settling, Store,
///     StoreDecision,
/// };
/// use tollgate::{Error, MemoryStore};
///
/// struct Counting<S> {
///     inner: S,
///     decisions: AtomicU64,
/// }
///
/// impl<S: Store> Store for Counting<S> {
///     fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
///         self.decisions.fetch_add(1, Ordering::Relaxed);
///         self.inner.decide(checks, ask)
///     }
///
///     fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
///         self.inner.settle(receipt, changes)
///     }
///
///     fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "expected a store, such as `MemoryStore::new()`",
    note = "limits shared by many processes need a `RedisStore`; `Arc<S>` and `Box<S>` are stores if `S` is one"
)]
pub trait Store: Send + Sync + 'static {
    /// Decides all `checks` as one: every enforced check fits and all is taken, or nothing is.
    ///
    /// A decision whose source is [`Store`](crate::Source::Store) proves to a layer that the store works. Any other
    /// source does not. So a store that can decide without its server passes an ask for a
    /// [probe](super::AskMode::Probe) on to it.
    ///
    /// A store with a [timeout](Capabilities::timeout) returns by the end of it, or by the deadline if that is earlier:
    /// with an error if it cannot decide. A store without one may ignore the deadline.
    ///
    /// # Errors
    ///
    /// If no decision could be made. After several errors, layers do not call the store for a moment: see
    /// [`OnFailure`](crate::OnFailure). Errors that are [invalid](Error::is_invalid) do not count.
    ///
    /// The store makes each decision at most once, but a decision that failed may still have taken its units. If the
    /// connection was lost, they stay taken. After a timeout, a store that can refund them does so when the late reply
    /// arrives. If the store has no timeout, and the layer's own timer ends the decision, its future is dropped: see
    /// Cancellation.
    ///
    /// # Cancellation
    ///
    /// Dropping a pending future is safe at any point: it never affects the decisions of others. If the decision was
    /// allowed, its units stay taken: the store cannot tell a client that disconnected from one that was served. Layers
    /// and limiters do not drop it if it may take slots of a [concurrency](crate::Quota::concurrency), and release
    /// them.
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>>;

    /// Makes `changes`, at least one, to the units that a decision took. Returns the result of each, in their order.
    ///
    /// Slots of a [concurrency](crate::Quota::concurrency) are released by [`Change::Refund`] and kept from expiring by
    /// [`Change::Renew`], in settlements with separate receipts. If a store makes no renewals, slots that are held for
    /// longer than their TTL expire.
    ///
    /// Never blocks nor panics, and may be called from `Drop`. Settlements are sent in the background, once. A receipt
    /// of another store is ignored. The future is ready in a bounded time, even if only with an error: requests and
    /// slots that wait for it are kept until then.
    ///
    /// [`Change::Renew`](super::Change::Renew) is repeated while a request holds slots of a
    /// [concurrency](crate::Quota::concurrency). A store that does not support it loses them after their TTL, and
    /// should then [reject](Self::capabilities) such quotas.
    ///
    /// # Errors
    ///
    /// If the outcome of the changes is not known: they may have been made or not.
    ///
    /// # Cancellation
    ///
    /// The changes are made even if the future is dropped.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling;

    /// Changes a counter outside any decision.
    ///
    /// Examples are a refund by support staff, a charge found later, or a [reset](Change::Reset).
    ///
    /// # Errors
    ///
    /// If the store could not make the change, or did not reply in time, in which case the change may have been made.
    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>>;

    /// Returns the store's capabilities, if it meets the requirements of one layer, one for each policy.
    ///
    /// It is called when policies are given to a layer or limiter, and returns at once. Without requirements it always
    /// succeeds. By default there is neither a timeout nor an identity, and all is supported but
    /// [bans](super::Check::ban), because a store that does not know them would ignore them. A wrapper calls the inner
    /// store.
    ///
    /// # Errors
    ///
    /// If it does not meet them: the message names the policy, and what to change.
    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Capabilities::without_bans(requirements)
    }
}

/// Capabilities of a store: see [`Store::capabilities`](crate::store::Store::capabilities).
///
/// # Examples
///
/// ```
/// use tollgate::store::Store;
/// use tollgate::MemoryStore;
///
/// let capabilities = MemoryStore::new().capabilities(&[])?;
/// assert!(capabilities.id.is_some());
/// assert_eq!(capabilities.timeout, None);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's own timeout of decisions, if any.
    ///
    /// It is the default of a layer's [timeout](crate::RateLimitLayer::timeout). If the layer's is shorter, each
    /// decision gets a [deadline](super::Ask::within), which a store with a timeout keeps as well. If the store has
    /// none, the layer limits pending decisions by its own timer.
    pub timeout: Option<Duration>,
    /// The identity of the counters: stores with the same identity count together. `None` if it is not known.
    pub id: Option<StoreId>,
}

impl Capabilities {
    /// Returns the capabilities of a store without [bans](super::Check::ban): no timeout and no identity.
    ///
    /// # Errors
    ///
    /// If a policy has a ban.
    pub fn without_bans(requirements: &[Requirement<'_>]) -> Result<Self, Error> {
        match requirements.iter().find(|requirement| requirement.bans) {
            Some(Requirement { policy, .. }) => Err(Error::invalid(format!(
                "policy {:?} has a ban, which this store does not have: choose another store",
                policy.as_str()
            ))),
            None => Ok(Self::default()),
        }
    }

    /// Returns the capabilities of a store with at most `most` policies and bans in a decision: no timeout and no
    /// identity.
    ///
    /// # Errors
    ///
    /// If there are more of both than one decision may have.
    pub fn with_few_bans(requirements: &[Requirement<'_>], most: usize) -> Result<Self, Error> {
        let (policies, bans) = (requirements.len(), requirements.iter().filter(|requirement| requirement.bans).count());
        if bans == 0 || policies + bans <= most {
            return Ok(Self::default());
        }
        Err(Error::invalid(format!(
            "{policies} policies, {bans} of them with a ban, are too many for one decision: at most {most} together are allowed"
        )))
    }

    /// Sets the store's own timeout of decisions.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets the identity of the counters.
    #[must_use]
    pub fn id(self, id: StoreId) -> Self {
        Self { id: Some(id), ..self }
    }

    pub(crate) fn from_store(store: &(impl Store + ?Sized)) -> Self {
        store.capabilities(&[]).unwrap_or_default()
    }
}

macro_rules! by_pointer {
    ($($pointer:ident),+) => {$(
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
                (**self).decide(checks, ask)
            }

            fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
                (**self).settle(receipt, changes)
            }

            fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
                (**self).adjust(counter, change)
            }

            fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
                (**self).capabilities(requirements)
            }
        }
    )+};
}

by_pointer!(Arc, Box);
