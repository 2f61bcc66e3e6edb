//! What all clones of a hybrid store share, and the way of a request admitted here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use super::builder::HybridStoreBuilder;
use super::entry::is_turn;
use super::shard::Shard;
use crate::Error;
use crate::decision::{Decision, Outcome, Source};
use crate::error::Kind;
use crate::store::lease::plain::is_plain;
use crate::store::lease::shards::Shards;
use crate::store::{
    Answer, Applied, Change, Check, Counter, Decided, Receipt, Settlement, Settling, Store, StoreId, Taken,
};

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
    /// Whose receipts are given for what is charged.
    pub(super) inner_id: OnceLock<StoreId>,
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
            inner_id: OnceLock::new(),
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

    /// Settles what was admitted here. What has been charged already goes back where it was charged.
    pub(super) fn settle(self: &Arc<Self>, taken: &Taken, change: Change) -> Settling {
        let units = match change {
            Change::Refund(units) => units,
            Change::Charge(units) => return self.charge_more(&taken.counter, units),
        };
        if !is_turn(taken.stamp) {
            return self.refund(&taken.counter, units, taken.stamp);
        }
        let hash = self.shards.hash(&taken.counter);
        let back = self.shards.lock(hash).find(hash, &taken.counter).map(|entry| entry.take_back(units, taken.stamp));
        match back {
            Some(Some((units, stamp))) => self.refund(&taken.counter, units, stamp),
            Some(None) => Answer::Ready(Ok(vec![Applied::new(units, taken.stamp)])),
            None => Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)])),
        }
    }

    /// Gives units back that a charge took in the inner store.
    pub(super) fn refund(&self, counter: &Counter, units: u64, stamp: u64) -> Settling {
        let Some(&store) = self.inner_id.get() else { return Answer::Ready(Ok(vec![Applied::new(0, stamp)])) };
        let taken = Taken { counter: counter.clone(), units, floor: 0, stamp, slot: 0 };
        self.inner.settle(Receipt::new(store, [taken]), &[Settlement { check: 0, change: Change::Refund(units) }])
    }

    /// Charges more than was admitted, with what is owed.
    fn charge_more(self: &Arc<Self>, counter: &Counter, units: u64) -> Settling {
        let Ok(permit) = Arc::clone(&self.adjusting).try_acquire_owned() else {
            tracing::warn!("a settlement was not sent: too many are on their way");
            return Answer::Ready(Ok(vec![Applied::new(0, 0)]));
        };
        let (told, applied) = oneshot::channel();
        match (self.inner.adjust(counter, Change::Charge(units)), self.runtime()) {
            (Answer::Ready(applied), _) => return Answer::Ready(applied.map(|applied| vec![applied])),
            (Answer::Pending(pending), Some(runtime)) => drop(runtime.spawn(async move {
                let _permit = permit;
                let applied = pending.await;
                if let Err(error) = &applied {
                    tracing::warn!(error = format!("{error:#}"), "a settlement may not have arrived");
                }
                // Nobody has to wait for it.
                let _ = told.send(applied);
            })),
            (Answer::Pending(_), None) => {}
        }
        Answer::pending(async move { applied.await.unwrap_or_else(|_| Err(stopped())).map(|applied| vec![applied]) })
    }

    /// Nothing is owed for a counter that is forgotten.
    pub(super) fn forget(&self, counter: &Counter) {
        let hash = self.shards.hash(counter);
        self.shards.lock(hash).remove(hash, counter);
    }
}

fn stopped() -> Error {
    Error::new(Kind::Store, "a settlement was stopped: its runtime has ended")
}
