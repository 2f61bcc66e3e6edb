//! Simulated time, simulated latency, simulated traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, LeaseCounts, LeaseStore, MaybeFuture, Receipt, Settlement, Settling,
    Store, StoreDecision,
};
use tollgate::test_util::ManualClock;
use tollgate::{Error, MemoryStore, Quota, Source};

use crate::support::checks::check;

/// Microseconds since the epoch.
pub(crate) fn micros(clock: &ManualClock) -> u64 {
    u64::try_from(clock.now().as_micros()).expect("the epoch is near")
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A store that is some way off: questions travel for `before`, answers for `after`; a `FailingStore` delays only answers.
/// It counts what it is asked.
#[derive(Clone)]
pub(crate) struct Far {
    pub(crate) inner: MemoryStore,
    before: Duration,
    after: Duration,
    calls: Arc<AtomicU64>,
}

impl Far {
    pub(crate) fn new(inner: MemoryStore, before: Duration, after: Duration) -> Self {
        Self { inner, before, after, calls: Arc::default() }
    }

    /// Decisions, settlements and adjustments so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn asked<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&MemoryStore) -> MaybeFuture<T> + Send + 'static,
    ) -> MaybeFuture<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if (self.before + self.after).is_zero() {
            return ask(&self.inner);
        }
        let Self { inner, before, after, .. } = self.clone();
        MaybeFuture::pending(async move {
            sleep(before).await;
            let answer = ask(&inner).wait().await;
            sleep(after).await;
            answer
        })
    }
}

impl Store for Far {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let checks = checks.to_vec();
        self.asked(move |inner| inner.decide(&checks, ask))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let changes = changes.to_vec();
        match self.asked(move |inner| inner.settle(receipt, &changes)) {
            MaybeFuture::Pending(settling) => {
                let settling = tokio::spawn(settling);
                MaybeFuture::pending(async move { settling.await.expect("it ends") })
            }
            ready @ MaybeFuture::Ready(_) => ready,
        }
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        let counter = counter.clone();
        self.asked(move |inner| inner.adjust(&counter, change))
    }
}

/// Units left for a key of a store.
pub(crate) async fn remaining(store: &impl Store, key: &str, quota: Quota) -> u64 {
    let look = store.decide(&[check(key, quota, 0)], Ask::default()).wait().await.expect("a store answers");
    look.decision.outcomes()[0].remaining()
}

/// Takes units; whether it was admitted, and by whom.
pub(crate) async fn take(store: &impl Store, key: &str, quota: Quota, cost: u64) -> (bool, Source) {
    let decision =
        store.decide(&[check(key, quota, cost)], Ask::default()).wait().await.expect("a store answers").decision;
    (decision.is_allowed(), decision.source())
}

/// Checks that all units there were are somewhere.
#[track_caller]
pub(crate) fn assert_balanced(counts: &LeaseCounts) {
    assert!(counts.leased + counts.owed >= counts.spent + counts.returned + counts.lost, "{counts:?}");
}

/// Closes a store, which then holds and owes nothing.
pub(crate) async fn close(store: &LeaseStore) -> LeaseCounts {
    store.close().await;
    let counts = store.counts();
    assert_balanced(&counts);
    assert_eq!((counts.owed, counts.held()), (0, 0), "{counts:?}");
    counts
}

/// When units were admitted, and how many.
pub(crate) type Admitted = Vec<(u64, u64)>;

/// What came of simulated traffic.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) admitted: Admitted,
    pub(crate) locally: u64,
    pub(crate) asked: u64,
}

/// A minute of bursts of random height and length over one key, the same for all `stores`: some
/// start together out of a silence.
pub(crate) async fn bursts<S: Store + Clone>(stores: &[S], quota: Quota, now: &ManualClock, height: u64) -> Traffic {
    let mut random = fastrand::Rng::with_seed(7);
    let start = micros(now);
    // Of each process, until when it makes how many requests in each step, at most.
    let mut phases = vec![(start, 0); stores.len()];
    let mut asked = JoinSet::new();
    while micros(now) < start + 60_000_000 {
        let together = random.u32(..400) == 0;
        let (pause, at) = (random.u64(200..2_500) * 1_000, micros(now));
        for (store, phase) in stores.iter().zip(&mut phases) {
            let (until, most) = *phase;
            if together {
                *phase = (at + pause, 0);
            } else if at >= until {
                let most = if most == 0 { random.u64(1..=height) } else { 0 };
                *phase = (at + random.u64(20..1_200) * 1_000, most);
            }
            for _ in 0..random.u64(..=phase.1) {
                let cost = if random.u32(..20) == 0 { random.u64(2..5) } else { 1 };
                let (store, now) = (store.clone(), now.clone());
                asked.spawn(async move { (take(&store, "hot", quota, cost).await, (micros(&now), cost)) });
            }
        }
        sleep(ms(random.u64(1..8))).await;
    }
    let mut traffic = Traffic { asked: asked.len() as u64, ..Traffic::default() };
    for ((is_admitted, source), taken) in asked.join_all().await {
        if is_admitted {
            traffic.admitted.push(taken);
            traffic.locally += u64::from(source == Source::Lease);
        }
    }
    traffic.admitted.sort_unstable();
    traffic
}
