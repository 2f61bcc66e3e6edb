//! Simulated time, simulated latency, simulated traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Settlement, Settling, Store, StoreDecision,
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
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) calls: Arc<AtomicU64>,
}

impl Far {
    pub(crate) fn new(inner: MemoryStore, before: Duration, after: Duration) -> Self {
        Self { inner, before, after, calls: Arc::default() }
    }

    pub(crate) fn near(inner: MemoryStore) -> Self {
        Self::new(inner, Duration::ZERO, Duration::ZERO)
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
        let settled = self.asked(move |inner| inner.settle(receipt, &changes));
        match settled {
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

/// When units were admitted, and how many.
pub(crate) type Admitted = Vec<(u64, u64)>;

/// What came of simulated traffic.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) admitted: Admitted,
    pub(crate) locally: u64,
    pub(crate) asked: u64,
}

/// How one process's clients behave for a while.
struct Phase {
    until: u64,
    /// Requests in each step, at most.
    most: u64,
}

/// A minute of bursts of random height and length over one key, the same for all `stores`: some
/// start together out of a silence.
pub(crate) async fn bursts<S: Store + Clone>(stores: &[S], quota: Quota, now: &ManualClock, height: u64) -> Traffic {
    let mut random = fastrand::Rng::with_seed(7);
    let start = micros(now);
    let mut phases: Vec<Phase> = stores.iter().map(|_| Phase { until: start, most: 0 }).collect();
    let mut asked = JoinSet::new();
    while micros(now) < start + 60_000_000 {
        let together = random.u32(..400) == 0;
        let (pause, at) = (random.u64(200..2_500) * 1_000, micros(now));
        for (store, phase) in stores.iter().zip(&mut phases) {
            if together {
                *phase = Phase { until: at + pause, most: 0 };
            } else if at >= phase.until {
                let most = if phase.most == 0 { random.u64(1..=height) } else { 0 };
                *phase = Phase { until: at + random.u64(20..1_200) * 1_000, most };
            }
            for _ in 0..random.u64(..=phase.most) {
                let cost = if random.u32(..20) == 0 { random.u64(2..5) } else { 1 };
                asked.spawn(taking(store.clone(), quota, cost, now.clone()));
            }
        }
        sleep(ms(random.u64(1..8))).await;
    }
    let mut traffic = Traffic { asked: asked.len() as u64, ..Traffic::default() };
    for (at, cost, admitted, source) in asked.join_all().await {
        if admitted {
            traffic.admitted.push((at, cost));
            traffic.locally += u64::from(source == Source::Lease);
        }
    }
    traffic.admitted.sort_unstable();
    traffic
}

async fn taking(store: impl Store, quota: Quota, cost: u64, now: ManualClock) -> (u64, u64, bool, Source) {
    let (admitted, source) = take(&store, "hot", quota, cost).await;
    (micros(&now), cost, admitted, source)
}
