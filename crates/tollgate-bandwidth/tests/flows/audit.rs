//! A store that counts what it admits and refunds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::store::{Ask, Change, Check, MaybeFuture, Receipt, Settlement, Settling, Store, StoreDecision};
use tollgate::{Error, Key, Limiter, Quota, Rule};

use crate::support::doubles::passes_on;

/// What a store has admitted and refunded, and how often it was called.
#[derive(Default)]
pub(super) struct Counts {
    admitted: AtomicU64,
    refunded: AtomicU64,
    calls: AtomicU64,
}

impl Counts {
    /// The units that stay taken, as far as flows know: what a bucket has refilled meanwhile counts as refunded.
    pub(super) fn taken(&self) -> u64 {
        self.admitted.load(Ordering::SeqCst) - self.refunded.load(Ordering::SeqCst)
    }

    pub(super) fn refunded(&self) -> u64 {
        self.refunded.load(Ordering::SeqCst)
    }

    /// The decisions so far.
    pub(super) fn calls(&self) -> u64 {
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
pub(super) struct Audit<S> {
    inner: S,
    counts: Arc<Counts>,
}

impl<S: Store> Store for Audit<S> {
    passes_on!(inner: adjust, capabilities);

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
        for change in changes.iter().filter(|change| change.check == 0) {
            let Change::Refund(units) = change.change else { panic!("a flow only refunds") };
            assert!(units <= receipt.items()[0].units, "no more than was taken");
            self.counts.refunded.fetch_add(units, Ordering::SeqCst);
        }
        self.inner.settle(receipt, changes)
    }
}

/// A limiter of one rule over an audited store, and its counts.
pub(super) fn limiter(store: impl Store, quota: Quota) -> (Limiter, Arc<Counts>) {
    limiter_of(store, Rule::new("bytes", quota))
}

/// The same, of a rule that is more than a quota.
pub(super) fn limiter_of(store: impl Store, rule: Rule) -> (Limiter, Arc<Counts>) {
    let counts = Arc::<Counts>::default();
    let audit = Audit { inner: store, counts: Arc::clone(&counts) };
    (Limiter::new(audit, [rule]), counts)
}

pub(super) fn ada() -> Key {
    Key::new("user", "ada")
}
