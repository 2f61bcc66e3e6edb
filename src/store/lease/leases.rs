//! The leases that all clones of a lease store share: what is held, and how it is returned.
//!
//! Everything else in this module works on [`Leases`]: `admit` on its parts, `call` on all of them. Receipts and changes come in and are settled here or in the inner store. When the last clone is
//! dropped, all leases are returned at once, without waiting.
//!
//! Invariant: the inner store is called without any lock held, since it may decide at once and then lock a part
//! itself.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tokio::sync::Semaphore;

use super::demand::OVERDRAWN;
use super::hot_key::Back;
use super::hot_keys::{HotKeys, LeaseCounts};
use crate::core::{Decision, Error, Quota};
use crate::store::clock::micros;
use crate::store::map::{CounterHasher, Shards};
use crate::store::{
    Ask, AskMode, Change, ChangeResult, Check, Clock, Counter, MaybeFuture, Receipt, ReceiptItem, Settlement, Settling,
    Store, StoreDecision, StoreId,
};

/// Lease calls in flight at most; more are not made.
pub(super) const MOST_CALLS: u32 = 4_096;

/// What all clones share. Times are microseconds of `clock`.
pub(super) struct Leases {
    /// What the receipts of requests admitted here carry.
    pub(super) id: StoreId,
    /// The store that leases are taken from.
    pub(super) inner: Arc<dyn Store>,
    /// The identity in the receipts of the leases, set by the first one; units are returned under it.
    pub(super) inner_id: OnceLock<StoreId>,
    /// The hot keys, by the hash of policy and key.
    pub(super) shards: Shards<HotKeys>,
    /// The hash of counters.
    hasher: CounterHasher,
    /// A permit for each lease call that may be in flight; closed when the store is.
    pub(super) calls: Arc<Semaphore>,
    /// Whether a task sweeps.
    pub(super) swept: AtomicBool,
    /// Whether the store has been closed: nothing is admitted here any more.
    pub(super) closed: AtomicBool,
    /// The share of a limit that is held at most: above 0 and up to 1.
    share: f64,
    /// Where the time comes from.
    clock: Box<dyn Clock>,
}

impl Leases {
    /// Returns an empty store of leases for up to `capacity` hot keys.
    pub(super) fn new(
        inner: Arc<dyn Store>,
        share: f64,
        overdraft: u64,
        capacity: usize,
        clock: Box<dyn Clock>,
    ) -> Self {
        Self {
            id: StoreId::new(),
            inner,
            inner_id: OnceLock::new(),
            shards: Shards::new(capacity, 1, |room| HotKeys::new(room, overdraft)),
            hasher: CounterHasher::new(),
            calls: Arc::new(Semaphore::new(MOST_CALLS as usize)),
            swept: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            share,
            clock,
        }
    }

    /// Returns the time of the clock in microseconds.
    pub(super) fn now(&self) -> u64 {
        micros(self.clock.now())
    }

    /// Returns the time of the wall clock in microseconds, if windows of the quota are aligned to it.
    #[inline]
    pub(super) fn wall(&self, quota: &Quota) -> Option<u64> {
        quota.is_aligned().then(|| micros(self.clock.wall()))
    }

    /// Returns the hash of policy and key.
    #[inline]
    pub(super) fn hash(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }

    /// Returns the most units this process holds of a counter: the share of the limit, or of a smaller capacity.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of an integer below 2^52"
    )]
    pub(super) fn most(&self, quota: &Quota) -> u64 {
        (quota.limit().min(quota.capacity()) as f64 * self.share) as u64
    }

    /// Returns the units of a counter that are held here, and those that are owed.
    fn held(&self, counter: &Counter) -> (u64, u64) {
        let (hash, now, mut backs) = (self.hash(counter), self.now(), Vec::new());
        let held = self.shards.lock(hash).find(hash, counter).map_or((0, 0), |hot| {
            hot.end_lots(now, self.wall(counter.quota()), &mut backs);
            (hot.held(now), hot.debt.owed)
        });
        self.give_back(backs, now);
        held
    }

    /// Returns the counts of all parts, one locked after the other.
    pub(super) fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts::default();
        self.shards.each().for_each(|hot_keys| counts += hot_keys.counts);
        counts
    }

    /// Has the inner store look at checks that cost nothing; units held here are added to what it finds to remain, and
    /// units owed are not left.
    pub(super) fn look(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let held: SmallVec<[(u64, u64); 4]> = checks.iter().map(|check| self.held(&check.counter)).collect();
        if held.iter().all(|units| *units == (0, 0)) {
            return self.inner.decide(checks, ask);
        }
        // What the inner store refuses may be admitted by units held here.
        let looked = self.inner.decide(checks, ask.mode(AskMode::Normal));
        looked.map(move |decided| {
            let StoreDecision { decision, receipt } = decided?;
            let outcomes = decision.outcomes().iter().zip(&held);
            let outcomes = outcomes.map(|(outcome, &(held, owed))| outcome.with_more(held, owed));
            Ok(StoreDecision::new(Decision::new(outcomes, decision.source()), receipt))
        })
    }

    /// Returns leases to the inner store and charges debts, and counts what became of them.
    ///
    /// To be called without any lock of a part held.
    pub(super) fn give_back(&self, backs: Vec<Back>, now: u64) {
        for back in backs {
            let hash = self.hash(back.counter());
            match back {
                Back::Lot(lot, limit) => {
                    let (left, returned) = (lot.left, lot.refund(limit, now));
                    if returned > 0 {
                        let refund = Settlement::new(0, Change::Refund(returned));
                        drop(self.inner.settle(lot.receipt, &[refund]));
                    }
                    let mut hot_keys = self.shards.lock(hash);
                    hot_keys.counts.returned += returned;
                    hot_keys.counts.lost += left - returned;
                }
                Back::Debt(counter, units) => {
                    drop(self.settle_there(&[], &ReceiptItem::new(counter, 0, 0), 0, Change::Charge(units)));
                    let mut hot_keys = self.shards.lock(hash);
                    hot_keys.counts.leased += units;
                    hot_keys.counts.owed -= units;
                }
            }
        }
    }

    /// Takes leases and debts out, to be returned or charged, except what a lease call in flight is to pay: all there
    /// are, or of as many keys as have `most` together.
    pub(super) fn take(&self, most: usize) -> Vec<Back> {
        let mut backs = Vec::new();
        for mut hot_keys in self.shards.each() {
            for hot in hot_keys.table.iter_mut() {
                if backs.len() >= most {
                    return backs;
                }
                hot.give_up(&mut backs, |_| true);
            }
        }
        backs
    }

    /// Forgets a counter that is reset: units that are held are lost, and units that are owed are not charged.
    pub(super) fn forget(&self, counter: &Counter) {
        let hash = self.hash(counter);
        let mut hot_keys = self.shards.lock(hash);
        let Some(hot) = hot_keys.table.remove(hash, |hot| hot.is(counter)) else { return };
        let counts = &mut hot_keys.counts;
        counts.lost += hot.lots.iter().map(|lot| lot.left).sum::<u64>();
        counts.owed -= hot.debt.owed;
        counts.spent -= hot.debt.owed;
    }

    /// Settles what was spent here, by a request that took others `before`.
    ///
    /// Refunded units are owed no more, or return to their lot, if that is neither over nor given up; else, and with
    /// every charge, the change goes to the inner store under its own stamp. Of overdrawn units whose payment is not
    /// known any more nothing is refunded.
    pub(super) fn settle(self: &Arc<Self>, before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> Settling {
        let Change::Refund(units) = change else {
            let (leases, hash) = (Arc::clone(self), self.hash(&taken.counter));
            let stamp = self.translated(taken).unwrap_or(0);
            let count = move |applied: &Vec<ChangeResult>| {
                let units: u64 = applied.iter().map(|applied| applied.units).sum();
                let mut hot_keys = leases.shards.lock(hash);
                hot_keys.counts.leased += units;
                hot_keys.counts.spent += units;
            };
            return self.settle_there(before, taken, stamp, change).map(|applied| applied.inspect(count));
        };
        let (done, rest, there) = self.take_back(taken, units);
        if rest == 0 {
            return MaybeFuture::Ready(Ok(vec![ChangeResult::new(done, taken.stamp)]));
        }
        let stamp = taken.stamp;
        self.settle_there(before, taken, there, Change::Refund(rest)).map(move |applied| {
            let done = |applied: ChangeResult| ChangeResult { units: applied.units + done, stamp, ..applied };
            applied.map(|applied| applied.into_iter().map(done).collect())
        })
    }

    /// Settles units in the inner store, which has this stamp for them.
    fn settle_there(&self, before: &[ReceiptItem], taken: &ReceiptItem, stamp: u64, change: Change) -> Settling {
        let Some(&store) = self.inner_id.get() else {
            return MaybeFuture::Ready(Ok(vec![ChangeResult::new(0, taken.stamp)]));
        };
        let at = |taken: &ReceiptItem, stamp| ReceiptItem { stamp, ..taken.clone() };
        let earlier = before.iter().filter_map(|part| Some(at(part, self.translated(part)?)));
        let receipt = Receipt::new(store, earlier.chain([at(taken, stamp)]));
        let settlement = Settlement::new(receipt.taken().len() - 1, change);
        self.inner.settle(receipt, &[settlement])
    }

    /// Returns the inner store's stamp of units that were taken here; `None` for overdrawn ones that are not paid.
    fn translated(&self, taken: &ReceiptItem) -> Option<u64> {
        if taken.stamp < OVERDRAWN {
            return Some(taken.stamp);
        }
        let hash = self.hash(&taken.counter);
        self.shards.lock(hash).find(hash, &taken.counter)?.debt.stamp_of(taken.stamp)
    }

    /// Takes units back that a request spent here; returns how many are done with, and how many have to be refunded by
    /// the inner store, with its stamp.
    ///
    /// All of them no longer count as spent.
    fn take_back(&self, taken: &ReceiptItem, units: u64) -> (u64, u64, u64) {
        let (hash, now) = (self.hash(&taken.counter), self.now());
        let mut hot_keys = self.shards.lock(hash);
        let HotKeys { table, counts, .. } = &mut *hot_keys;
        let mut hot = table.find_mut(hash, |hot| hot.is(&taken.counter));
        let (owed, paid, stamp) = match &mut hot {
            _ if taken.stamp < OVERDRAWN => (0, units, taken.stamp),
            Some(hot) => hot.debt.take_back(taken.stamp, units),
            None => (0, 0, 0),
        };
        let lots = hot.into_iter().flat_map(|hot| hot.lots.iter_mut());
        let is_back = lots.filter(|lot| lot.stamp() == stamp).any(|lot| lot.put_back(paid, now));
        counts.spent = counts.spent.saturating_sub(owed + paid);
        counts.owed -= owed;
        counts.returned += if is_back { 0 } else { paid };
        if is_back { (owed + paid, 0, stamp) } else { (owed, paid, stamp) }
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        let backs = self.take(usize::MAX);
        self.give_back(backs, self.now());
        self.counts().log();
    }
}
