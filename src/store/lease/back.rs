//! Units on their way back, and the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::counts::LeaseCounts;
use super::entry::Back;
use super::grant::MOST_CALLS;
use super::shared::Shared;
use crate::store::{Change, Check, Counter, Receipt, Settlement, Store, Taken};

/// How often leases are looked through for those that are over, in microseconds.
const SWEEP: u64 = 50_000;

impl Shared {
    /// Gives leases back to the inner store.
    pub(super) fn give_back(&self, backs: Vec<Back>, now: u64) {
        for (lot, limit) in backs {
            let (left, hash) = (lot.left, self.shards.hash(lot.counter()));
            let returned = lot.give_back(&*self.inner, limit, now);
            let mut shard = self.shards.lock(hash);
            shard.counts.returned += returned;
            shard.counts.lost += left - returned;
        }
    }

    /// Sweeps if nobody has for a while.
    pub(super) fn sweep_if_due(&self, now: u64) {
        let due = self.next_sweep.load(Ordering::Relaxed);
        if now < due && due - now <= SWEEP {
            return;
        }
        let turn = self.next_sweep.compare_exchange(due, now + SWEEP, Ordering::Relaxed, Ordering::Relaxed);
        if turn.is_ok() {
            self.sweep(now);
        }
    }

    /// Returns whether leases are left.
    fn sweep(&self, now: u64) -> bool {
        let (mut backs, mut held) = (Vec::new(), false);
        for mut shard in self.shards.each() {
            shard.sweep(now, &mut backs);
            held |= shard.holds_leases();
        }
        self.give_back(backs, now);
        held
    }

    /// Sweeps; returns whether no lease is held or asked for.
    fn is_at_rest(&self) -> bool {
        let asked = self.calls.available_permits() < MOST_CALLS as usize;
        !self.sweep(self.now()) && !asked
    }

    /// Sweeps in a task as long as there are leases, for the time when nobody asks anything.
    pub(super) fn sweep_by_task(self: &Arc<Self>) {
        if self.swept.swap(true, Ordering::SeqCst) {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_micros(SWEEP)).await;
                let Some(shared) = weak.upgrade() else { return };
                if shared.is_at_rest() {
                    shared.swept.store(false, Ordering::SeqCst);
                    // A call made just before relied on this task.
                    if shared.is_at_rest() || shared.swept.swap(true, Ordering::SeqCst) {
                        return;
                    }
                }
            }
        });
    }

    /// Takes no more leases, and gives back all there are.
    pub(super) async fn close(&self) -> LeaseCounts {
        self.closed.store(true, Ordering::SeqCst);
        if let Ok(calls) = self.calls.acquire_many(MOST_CALLS).await {
            // Nobody gets one again.
            calls.forget();
            self.calls.close();
        }
        let mut answers = true;
        for back in self.take_all() {
            let look = Check::new(back.0.counter().clone(), 0);
            let left = back.0.left;
            self.give_back(vec![back], self.now());
            if answers && left > 0 {
                tokio::task::yield_now().await;
                answers = self.inner.decide(&[look]).wait().await.is_ok();
            }
        }
        self.counts()
    }

    fn take_all(&self) -> Vec<Back> {
        let mut backs = Vec::new();
        self.shards.each().for_each(|mut shard| shard.clear(&mut backs));
        backs
    }

    /// Settles what was spent from a lease.
    pub(super) fn settle(&self, taken: &Taken, change: Change) {
        if let Change::Refund(units) = change {
            let counts = |returned: u64| {
                let mut shard = self.shards.lock(self.shards.hash(&taken.counter));
                shard.counts.spent = shard.counts.spent.saturating_sub(units);
                shard.counts.returned += returned;
            };
            if self.put_back(&taken.counter, taken.stamp, units) {
                return counts(0);
            }
            counts(units);
        }
        let Some(&store) = self.inner_id.get() else { return };
        self.inner.settle(Receipt::new(store, [taken.clone()]), &[Settlement { check: 0, change }]);
    }

    fn put_back(&self, counter: &Counter, stamp: u64, units: u64) -> bool {
        let (hash, now) = (self.shards.hash(counter), self.now());
        let mut shard = self.shards.lock(hash);
        let Some(entry) = shard.find(hash, counter) else { return false };
        let mut lots = entry.lots.iter_mut().filter(|lot| lot.stamp() == stamp);
        lots.any(|lot| lot.put_back(units, now))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let backs = self.take_all();
        self.give_back(backs, self.now());
        self.counts().tell();
    }
}
