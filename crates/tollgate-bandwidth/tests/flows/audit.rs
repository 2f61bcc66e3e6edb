//! A store that counts what it admits and refunds, and flows over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::store::{
    Ask, Capabilities, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Requirement, Settlement, Settling,
    Store, StoreDecision,
};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Error, Key, Limiter, MemoryStore, OnFailure, Quota, Rule};
use tollgate_bandwidth::Flow;

/// What a store has admitted and refunded, and how often it was called.
#[derive(Default)]
pub(crate) struct Counts {
    admitted: AtomicU64,
    refunded: AtomicU64,
    calls: AtomicU64,
}

impl Counts {
    /// The units that stay taken, as far as flows know: what a bucket has refilled meanwhile counts as refunded.
    pub(crate) fn taken(&self) -> u64 {
        self.admitted.load(Ordering::SeqCst) - self.refunded()
    }

    pub(crate) fn refunded(&self) -> u64 {
        self.refunded.load(Ordering::SeqCst)
    }

    /// The decisions so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn decided(&self, decided: &Result<StoreDecision, Error>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if let Ok(decided) = decided {
            let units = decided.receipt.items().first().map_or(0, |taken| taken.units);
            self.admitted.fetch_add(units, Ordering::SeqCst);
        }
    }
}

/// It passes decisions and settlements on, counts those of the first check, and has no budget of its own.
pub(crate) struct Audit<S> {
    inner: S,
    counts: Arc<Counts>,
}

impl<S: Store> Audit<S> {
    pub(crate) fn new(inner: S) -> (Self, Arc<Counts>) {
        let counts = Arc::<Counts>::default();
        (Self { inner, counts: Arc::clone(&counts) }, counts)
    }
}

impl<S: Store> Store for Audit<S> {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let counts = Arc::clone(&self.counts);
        match self.inner.decide(checks, ask) {
            MaybeFuture::Ready(decided) => {
                counts.decided(&decided);
                MaybeFuture::Ready(decided)
            }
            MaybeFuture::Pending(pending) => MaybeFuture::pending(async move {
                let decided = pending.await;
                counts.decided(&decided);
                decided
            }),
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        assert!(!changes.is_empty(), "what stays taken is not settled");
        for change in changes.iter().filter(|change| change.check == 0) {
            let Change::Refund(units) = change.change else { panic!("a flow only refunds") };
            assert!(units <= receipt.items()[0].units, "no more than was taken");
            self.counts.refunded.fetch_add(units, Ordering::SeqCst);
        }
        self.inner.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.inner.adjust(counter, change)
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        self.inner.capabilities(requirements)
    }
}

/// A store in memory by tokio's paused time.
pub(crate) fn memory() -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::paused()).build()
}

/// A limiter of one rule over an audited store, and its counts.
pub(crate) fn limiter(store: impl Store, quota: Quota) -> (Limiter, Arc<Counts>) {
    limiter_of(store, Rule::new("bytes", quota))
}

/// The same, of a rule that is more than a quota.
pub(crate) fn limiter_of(store: impl Store, rule: Rule) -> (Limiter, Arc<Counts>) {
    let (audit, counts) = Audit::new(store);
    (Limiter::new(audit, [rule]), counts)
}

/// A flow over a store in memory, its limiter and counts.
pub(crate) async fn flow(quota: Quota) -> (Flow, Limiter, Arc<Counts>) {
    let (limiter, counts) = limiter(memory(), quota);
    (flow_of(&limiter).await, limiter, counts)
}

/// The same, over a store that a test has fail.
pub(crate) async fn failing(quota: Quota, rule: OnFailure) -> (FailingStore<MemoryStore>, Flow, Limiter, Arc<Counts>) {
    let store = FailingStore::new(memory());
    let (limiter, counts) = limiter(store.clone(), quota);
    let limiter = limiter.on_failure(rule);
    (store, flow_of(&limiter).await, limiter, counts)
}

pub(crate) async fn flow_of(limiter: &Limiter) -> Flow {
    Flow::of(limiter, &ada()).await.expect("a flow")
}

pub(crate) fn ada() -> Key {
    Key::new("user", "ada")
}
