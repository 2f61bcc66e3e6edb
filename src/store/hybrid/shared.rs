//! What all clones of a hybrid store share, and the way of a request admitted here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle as Runtime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::builder::HybridStoreBuilder;
use super::epoch::unmarked;
use super::ledger::{Back, is_turn};
use super::shard::Shard;
use super::ticking::Ticking;
use crate::core::decision::{Decision, Outcome, Source};
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
    pub(super) adjusting: Arc<Semaphore>,
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
        let mut ticking = SmallVec::<[Ticking; 1]>::new();
        for (index, check) in checks.iter().enumerate() {
            let (hash, shard) = locked.of(index);
            let entry = shard.find(hash, &check.counter).expect("it was covered");
            let (outcome, part) = entry.spend(check, now);
            outcomes.push(outcome);
            taken.push(part);
            if !std::mem::replace(&mut entry.ticks, true) {
                ticking.push(Ticking::new(Arc::clone(self), hash, entry.counter.clone()));
            }
        }
        // A runtime that ends drops what it is given, and that locks.
        drop(locked);
        ticking.into_iter().for_each(|task| drop(runtime.spawn(task.pay())));
        let decision = Decision::new(outcomes, Source::Lease);
        Some(Decided { decision, receipt: Receipt::new(self.id, taken) })
    }

    /// Settles what was admitted here, to a request that took others `before`. What has been charged already goes
    /// back where it was charged.
    pub(super) fn settle(self: &Arc<Self>, before: &[Taken], taken: &Taken, change: Change) -> Settling {
        let units = match change {
            Change::Refund(units) => units,
            Change::Charge(units) => return self.charge_more(&taken.counter, units),
        };
        let nothing = Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)]));
        if !is_turn(taken.stamp) {
            let epoch = self.epoch(&taken.counter);
            let Some(stamp) = unmarked(taken.stamp, epoch) else { return nothing };
            let same = before.iter().filter(|part| part.counter == taken.counter && !is_turn(part.stamp));
            let there = same.filter_map(|part| Some(Taken { stamp: unmarked(part.stamp, epoch)?, ..part.clone() }));
            return self.refund(there.collect(), Taken { stamp, ..taken.clone() }, units);
        }
        let hash = self.shards.hash(&taken.counter);
        let back = self.shards.lock(hash).find(hash, &taken.counter).map(|entry| entry.take_back(units, taken.stamp));
        match back {
            Some(Back::Charged { units, stamp }) => self.refund_charged(&taken.counter, units, stamp),
            Some(Back::Unpaid(units) | Back::Owed(units)) => Answer::Ready(Ok(vec![Applied::new(units, taken.stamp)])),
            Some(Back::Nothing) | None => nothing,
        }
    }

    /// Gives units back that a charge took in the inner store.
    pub(super) fn refund_charged(&self, counter: &Counter, units: u64, stamp: u64) -> Settling {
        self.refund(Vec::new(), Taken { counter: counter.clone(), units, floor: 0, stamp, slot: 0 }, units)
    }

    /// Gives units back of what the inner store took, and before it others of the same request.
    fn refund(&self, before: Vec<Taken>, taken: Taken, units: u64) -> Settling {
        let Some(&store) = self.inner_id.get() else { return Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)])) };
        let change = Settlement { check: before.len(), change: Change::Refund(units) };
        self.inner.settle(Receipt::new(store, before.into_iter().chain([taken])), &[change])
    }
}
