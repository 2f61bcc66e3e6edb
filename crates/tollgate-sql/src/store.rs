use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::Error;
use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Requirement, Settlement, Settling,
    Store, StoreDecision,
};

use crate::queue::{MAX_STATES, TxResult, Work};
use crate::run::{BackendInner, lost};
use crate::traits::StateBackend;

const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A store on a database that implements [`StateBackend`]: all algorithms, and one decision over several policies.
///
/// Concurrent requests over the same counters share one transaction, so a hot key does not make the database's
/// transactions wait for each other, or conflict. Requests over different counters have separate transactions, 16 at a
/// time unless [set](BackendStoreBuilder::max_transactions). Beyond that they share some, too.
///
/// A decision takes at most the [timeout](BackendStoreBuilder::timeout), 100 ms by default. If the database commits
/// after that, the units are refunded, unless the refund fails, too. A decision or a settlement has at most 128
/// counters, where each ban is a counter, too. At most 16,384 requests wait for others, and further requests fail
/// immediately.
///
/// A denied request commits only its strikes, if a policy has a ban. Put a [`DenyCache`](tollgate::store::DenyCache)
/// around the store, so that a flood of denied requests does not reach the database.
///
/// A request that is dropped before the commit takes no units. If it is dropped during the commit, its units stay
/// taken. Refunds, charges, and changes of slots that the database certainly did not make are retried, for at most 10
/// s.
///
/// A database that waits, or reports conflicts, needs a tokio runtime with time enabled, even for settlements, which
/// are dropped without a runtime. A transaction is a task of the runtime in which it begins, and ends with it. While
/// nothing drives that runtime, requests over the same counters, and those that wait for its place, time out. Clones
/// share everything. [`StateBackend`] has an example.
pub struct BackendStore<B: StateBackend> {
    shared: Arc<BackendInner<B>>,
}

impl<B: StateBackend> BackendStore<B> {
    /// A store on this database, with the default settings.
    pub fn new(backend: B) -> Self {
        Self::builder(backend).build()
    }

    /// Returns settings to build a store from.
    pub fn builder(backend: B) -> BackendStoreBuilder<B> {
        BackendStoreBuilder { backend, budget: Duration::from_millis(100), transactions: 16 }
    }
}

impl<B: StateBackend> Store for BackendStore<B> {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let within = ask.remaining().unwrap_or(Duration::MAX).min(self.shared.budget);
        let until = Some(Instant::now() + within);
        self.shared.submit(Work::Decide(checks.to_vec()), until).map(|done| done.map(TxResult::decided))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.shared.id {
            return MaybeFuture::Ready(Ok(Vec::new()));
        }
        let work = Work::Settle(receipt, changes.to_vec());
        // It may be called while a thread unwinds, where a panic of the database would end the process.
        let settling = catch_unwind(AssertUnwindSafe(|| self.shared.submit(work, None)));
        settling.unwrap_or_else(|_| MaybeFuture::Ready(Err(lost()))).map(|done| done.map(TxResult::changed))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        let until = Some(Instant::now() + self.shared.budget);
        let changed = self.shared.submit(Work::Adjust(counter.clone(), change), until);
        changed.map(|done| done.map(|done| done.changed().remove(0)))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        let capabilities = Capabilities::with_few_bans(requirements, MAX_STATES)?;
        Ok(capabilities.timeout(self.shared.budget).id(self.shared.id))
    }
}

impl<B: StateBackend> Clone for BackendStore<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B: StateBackend> fmt::Debug for BackendStore<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendStore").field("timeout", &self.shared.budget).finish_non_exhaustive()
    }
}

/// Settings of a [`BackendStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate_sql::{BackendStore, StateBackend};
///
/// /// A store on a pool of 8 connections.
/// fn store<B: StateBackend>(database: B) -> BackendStore<B> {
///     BackendStore::builder(database).timeout(Duration::from_millis(50)).max_transactions(8).build()
/// }
/// ```
#[must_use]
pub struct BackendStoreBuilder<B> {
    backend: B,
    budget: Duration,
    transactions: usize,
}

impl<B: StateBackend> BackendStoreBuilder<B> {
    /// Sets how long a decision may take, instead of 100 ms: more than 0.
    ///
    /// It covers loading, trying again after conflicts, and committing. Timers add up to 2 ms.
    pub fn timeout(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets the most concurrent transactions, at least 1, instead of 16.
    ///
    /// Use the number of connections of the database's pool. A transaction that has not returned keeps its place for up
    /// to 10 s beyond the timeout.
    pub fn max_transactions(self, transactions: usize) -> Self {
        Self { transactions, ..self }
    }

    /// Builds the store.
    ///
    /// # Panics
    ///
    /// If a setting is 0.
    #[track_caller]
    pub fn build(self) -> BackendStore<B> {
        match self.try_build() {
            Ok(store) => store,
            Err(error) => panic!("{error:#}"),
        }
    }

    /// Fallible version of [`build`](Self::build).
    ///
    /// # Errors
    ///
    /// If a setting is 0.
    pub fn try_build(self) -> Result<BackendStore<B>, Error> {
        if self.budget.is_zero() {
            return Err(Error::invalid("a timeout of 0 decides nothing: use a longer one"));
        }
        if self.transactions == 0 {
            return Err(Error::invalid("0 transactions at once decide nothing: at least 1 is needed"));
        }
        let shared = BackendInner::new(self.backend, self.budget.min(MAX_TTL), self.transactions);
        Ok(BackendStore { shared: Arc::new(shared) })
    }
}

impl<B> fmt::Debug for BackendStoreBuilder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, transactions, .. } = self;
        f.debug_struct("BackendStoreBuilder")
            .field("timeout", budget)
            .field("max_transactions", transactions)
            .finish_non_exhaustive()
    }
}
