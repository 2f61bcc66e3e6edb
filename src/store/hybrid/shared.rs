//! What all clones of a hybrid store share, and the way of a request admitted here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::builder::HybridStoreBuilder;
use super::shard::Shard;
use crate::decision::{Decision, Outcome, Source};
use crate::store::lease::plain::is_plain;
use crate::store::lease::shards::Shards;
use crate::store::{Answer, Change, Check, Counter, Decided, Receipt, Store, StoreId, Taken};

/// What was looked at this many ticks ago says nothing any more.
const FRESH_TICKS: u32 = 10;

/// Refunds and charges on their way at most; more are not sent, and units stay taken.
const MOST_ADJUSTMENTS: usize = 4_096;

pub(super) struct Shared {
    pub(super) id: StoreId,
    pub(super) inner: Arc<dyn Store>,
    pub(super) shards: Shards<Shard>,
    pub(super) tick: Duration,
    pub(super) allowance: u64,
    pub(super) closed: AtomicBool,
    adjusting: Arc<Semaphore>,
    runtime: OnceLock<Runtime>,
}

impl Shared {
    pub(super) fn new(settings: HybridStoreBuilder) -> Self {
        let HybridStoreBuilder { inner, tick, allowance, capacity } = settings;
        Self {
            id: StoreId::new(),
            inner,
            shards: Shards::new(capacity, Shard::new),
            tick,
            allowance,
            closed: AtomicBool::new(false),
            adjusting: Arc::new(Semaphore::new(MOST_ADJUSTMENTS)),
            runtime: OnceLock::new(),
        }
    }

    pub(super) fn fresh(&self) -> Duration {
        self.tick * FRESH_TICKS
    }

    /// Where debts are paid: the runtime asked from, else an earlier one.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        let current = Runtime::try_current().ok();
        if let Some(runtime) = &current {
            let _ = self.runtime.set(runtime.clone());
        }
        current.or_else(|| self.runtime.get().cloned())
    }

    /// Admits a request that the rooms of all its keys cover.
    pub(super) fn admit(self: &Arc<Self>, checks: &[Check]) -> Option<Decided> {
        if !is_plain(checks) {
            return None;
        }
        let (runtime, now) = (self.runtime()?, Instant::now());
        let mut locked = self.shards.lock_all(checks);
        let closed = self.closed.load(Ordering::SeqCst);
        let covered = |(index, check): (usize, &Check)| {
            let (hash, shard) = locked.of(index);
            let strays = shard.strays > 0;
            let entry = shard.find(hash, &check.counter);
            entry.is_some_and(|entry| !strays && entry.covers(check, now, self.fresh()))
        };
        if closed || !checks.iter().enumerate().all(covered) {
            return None;
        }
        let (mut outcomes, mut taken) = (SmallVec::<[Outcome; 2]>::new(), SmallVec::<[Taken; 1]>::new());
        for (index, check) in checks.iter().enumerate() {
            let (hash, shard) = locked.of(index);
            let entry = shard.find(hash, &check.counter).expect("it was covered");
            let (outcome, part) = entry.spend(check, now);
            outcomes.push(outcome);
            taken.push(part);
            if !std::mem::replace(&mut entry.ticks, true) {
                runtime.spawn(Arc::clone(self).pay_each_tick(hash, entry.counter.clone()));
            }
        }
        let decision = Decision::new(outcomes, Source::Lease);
        Some(Decided { decision, receipt: Receipt::new(self.id, taken) })
    }

    /// Settles what was admitted here. What has been charged already goes back as long as it counts.
    pub(super) fn settle(self: &Arc<Self>, taken: &Taken, change: Change) {
        let Change::Refund(units) = change else { return self.adjust(&taken.counter, change) };
        let hash = self.shards.hash(&taken.counter);
        let mut shard = self.shards.lock(hash);
        let Some(entry) = shard.find(hash, &taken.counter) else { return };
        let (charged, counts) = (entry.take_back(units), entry.counts(Instant::now()));
        drop(shard);
        if charged > 0 && counts {
            self.adjust(&taken.counter, Change::Refund(charged));
        }
    }

    /// Changes a counter in the background.
    fn adjust(&self, counter: &Counter, change: Change) {
        let Ok(permit) = Arc::clone(&self.adjusting).try_acquire_owned() else {
            return tracing::warn!("a settlement was not sent: too many are on their way");
        };
        if let (Answer::Pending(pending), Some(runtime)) = (self.inner.adjust(counter, change), self.runtime()) {
            runtime.spawn(async move {
                let _permit = permit;
                if let Err(error) = pending.await {
                    tracing::warn!(error = format!("{error:#}"), "a settlement may not have arrived");
                }
            });
        }
    }

    /// Nothing is owed for a counter that is forgotten.
    pub(super) fn forget(&self, counter: &Counter) {
        let hash = self.shards.hash(counter);
        self.shards.lock(hash).remove(hash, counter);
    }
}
