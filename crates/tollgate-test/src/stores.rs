//! A store that decides by a closure, and a store that records calls.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, ReceiptItem, Requirement,
    Settlement, Settling, Store, StoreDecision, StoreId,
};
use tollgate::{Decision, Error, Outcome, Source};

/// A store that decides each check by a closure, and keeps no state, to test reactions to a decision.
///
/// The closure returns `true` if the check fits. A check that fits leaves its quota's capacity less its cost. A check
/// that does not fit can be repeated after a window, unless [`retry_after`](Self::retry_after) is set. A peek (a check
/// of cost 0) always fits, with nothing left if the closure returns `false`. Charges and refunds are reported as done.
/// A layer on this store rejects policies with a [`Ban`](tollgate::Ban).
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, Quota, Rule};
/// use tollgate_test::StoreFn;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let store = StoreFn::new(|check| check.cost <= 10);
/// let limiter = Limiter::new(store, [Rule::new("mail", Quota::per_hour(100))]);
///
/// let ada = Key::new("user", "ada");
/// assert!(limiter.check_n(&ada, 10).await?.is_allowed());
/// assert!(!limiter.check_n(&ada, 11).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoreFn<F> {
    id: StoreId,
    fits: F,
    source: Source,
    retry_after: Option<Duration>,
}

impl<F> StoreFn<F>
where
    F: Fn(&Check) -> bool + Send + Sync + 'static,
{
    /// A store of a closure that returns `true` if a check fits. It must not block.
    pub fn new(fits: F) -> Self {
        Self { id: StoreId::new(), fits, source: Source::Store, retry_after: None }
    }

    /// Sets the source of all decisions, by default [`Source::Store`], to test code that depends on it, such as logs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Limiter, Quota, Rule, Source};
    /// use tollgate_test::StoreFn;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let store = StoreFn::new(|_| false).source(Source::DenyCache);
    /// let limiter = Limiter::new(store, [Rule::new("mail", Quota::per_hour(100))]);
    /// assert_eq!(limiter.check(&Key::new("user", "ada")).await?.source(), Source::DenyCache);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    /// Sets the wait of all denials, by default the window of the quota, to test code that waits.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use http::Request;
    /// use tollgate::{Policy, Quota, RateLimitLayer};
    /// use tollgate_test::{StoreFn, send};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let store = StoreFn::new(|_| false).retry_after(Duration::from_secs(3));
    /// let layer = RateLimitLayer::new(store, Policy::new("api", Quota::per_hour(100)));
    /// let sent = send(&layer, 1, |_| Request::new(String::new())).await;
    /// assert_eq!(sent[0].headers()["retry-after"], "3");
    /// # }
    /// ```
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    fn outcome(&self, check: &Check) -> Outcome {
        let capacity = check.counter.quota().capacity();
        match ((self.fits)(check), check.cost) {
            (true, cost) => Outcome::allowed(check, capacity.saturating_sub(cost)),
            (false, 0) => Outcome::allowed(check, 0),
            (false, _) => {
                let wait = self.retry_after.unwrap_or(check.counter.quota().window());
                Outcome::denied(check, 0, Some(wait))
            }
        }
    }
}

impl<F> Store for StoreFn<F>
where
    F: Fn(&Check) -> bool + Send + Sync + 'static,
{
    fn decide(&self, checks: &[Check], _: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let decision = Decision::new(checks.iter().map(|check| self.outcome(check)), self.source);
        let taken = checks.iter().zip(decision.outcomes()).filter(|_| decision.is_allowed()).map(|(check, outcome)| {
            let units = if outcome.is_allowed() { check.cost } else { 0 };
            ReceiptItem::new(check.counter.clone(), units, 0).floor(check.floor)
        });
        let receipt = Receipt::new(self.id, taken);
        MaybeFuture::Ready(Ok(StoreDecision::new(decision, receipt)))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() != self.id {
            return MaybeFuture::Ready(Ok(Vec::new()));
        }
        let results = changes.iter().map(|settlement| match receipt.items().get(settlement.check) {
            Some(taken) => applied(settlement.change, taken.units),
            None => ChangeResult::new(0, 0),
        });
        MaybeFuture::Ready(Ok(results.collect()))
    }

    fn adjust(&self, _: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        MaybeFuture::Ready(Ok(applied(change, u64::MAX)))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Ok(Capabilities::without_bans(requirements)?.id(self.id))
    }
}

fn applied(change: Change, taken: u64) -> ChangeResult {
    let units = match change {
        Change::Refund(units) | Change::Renew(units) => units.min(taken),
        Change::Charge(units) => units,
        _ => 0,
    };
    ChangeResult::new(units, 0)
}

impl<F> fmt::Debug for StoreFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFn").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A wrapper store that records each call before it passes it on. Clones share the inner store and the records.
///
/// It keeps all calls until they are [taken](Self::take).
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
/// use tollgate_test::{Recorded, RecordingStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let store = RecordingStore::new(MemoryStore::new());
/// let limiter = Limiter::new(store.clone(), [Rule::new("mail", Quota::per_hour(100))]);
/// limiter.check_n(&Key::new("user", "ada"), 7).await?;
///
/// let Some(Recorded::Decide(checks)) = store.recorded().into_iter().next() else { unreachable!("it was called") };
/// assert_eq!((checks.len(), checks[0].cost), (1, 7));
/// assert_eq!(checks[0].counter.key().as_str(), "user:ada");
/// # Ok(())
/// # }
/// ```
pub struct RecordingStore<S> {
    inner: Arc<S>,
    recorded: Arc<Mutex<Vec<Recorded>>>,
}

/// A call of a method of a [`RecordingStore`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recorded {
    /// [`Store::decide`], with the checks of one request or of a [probe](tollgate::store::AskMode::Probe) after a failure.
    Decide(Vec<Check>),
    /// [`Store::settle`], with the items of the receipt, and the changes to them.
    Settle(Vec<ReceiptItem>, Vec<Settlement>),
    /// [`Store::adjust`].
    Adjust(Counter, Change),
}

impl<S: Store> RecordingStore<S> {
    /// Wraps `inner`, with no records.
    pub fn new(inner: S) -> Self {
        Self { inner: Arc::new(inner), recorded: Arc::default() }
    }

    /// Returns the calls so far, in their order. Calls of [`Store::capabilities`] are not recorded.
    #[must_use]
    pub fn recorded(&self) -> Vec<Recorded> {
        self.records().clone()
    }

    /// Returns the calls so far, in their order, and deletes the records.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut *self.records())
    }

    fn record(&self, call: Recorded) {
        self.records().push(call);
    }

    fn records(&self) -> MutexGuard<'_, Vec<Recorded>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store> Store for RecordingStore<S> {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.record(Recorded::Decide(checks.to_vec()));
        self.inner.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.record(Recorded::Settle(receipt.items().to_vec(), changes.to_vec()));
        self.inner.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.record(Recorded::Adjust(counter.clone(), change));
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

impl<S> Clone for RecordingStore<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), recorded: Arc::clone(&self.recorded) }
    }
}

impl<S: fmt::Debug> fmt::Debug for RecordingStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
