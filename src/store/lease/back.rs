//! Units on their way back, and the end.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::counts::LeaseCounts;
use super::entry::Back;
use super::grant::MOST_CALLS;
use super::shared::Shared;
use crate::store::{Answer, Applied, Change, Check, Counter, Deadline, Receipt, Settlement, Settling, Store, Taken};

/// How often leases are looked through for those that are over, in microseconds.
const SWEEP: u64 = 50_000;

/// Leases handed over in one go when the store is closed: inner stores bound how many settlements are
/// on their way to them.
const AT_ONCE: usize = 1_024;

/// Leases that go back part by part; all that are left at once when this is dropped.
struct Returning<'a> {
    shared: &'a Shared,
    backs: Vec<Back>,
}

impl Returning<'_> {
    /// Hands the next part over; returns the counters that units go back to.
    fn hand_over(&mut self) -> Vec<Counter> {
        let part = self.backs.split_off(self.backs.len().saturating_sub(AT_ONCE));
        let counters = part.iter().filter(|(lot, _)| lot.left > 0).map(|(lot, _)| lot.counter().clone()).collect();
        self.shared.give_back(part, self.shared.now());
        counters
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        self.shared.give_back(mem::take(&mut self.backs), self.shared.now());
    }
}

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
        let mut sweeping = Sweeping(Arc::downgrade(self));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_micros(SWEEP)).await;
                let Some(shared) = sweeping.0.upgrade() else { return };
                if shared.is_at_rest() {
                    shared.swept.store(false, Ordering::SeqCst);
                    // A call made just before relied on this task.
                    if shared.is_at_rest() || shared.swept.swap(true, Ordering::SeqCst) {
                        drop(mem::take(&mut sweeping.0));
                        return;
                    }
                }
            }
        });
    }

    /// Takes no more leases, and gives back all there are: before it waits for anything, but for what
    /// is more than [`AT_ONCE`], which goes back when this is dropped, at the latest.
    pub(super) async fn close(&self) -> LeaseCounts {
        self.closed.store(true, Ordering::SeqCst);
        let asked = self.asked();
        let mut returning = Returning { shared: self, backs: self.take_all() };
        let mut answers = true;
        while !returning.backs.is_empty() {
            let counters = returning.hand_over();
            answers = answers && self.answers(counters).await;
        }
        if let Ok(calls) = self.calls.acquire_many(MOST_CALLS).await {
            // Nobody gets one again, and what came of them has been given back.
            calls.forget();
            self.calls.close();
        }
        if answers {
            self.answers(asked).await;
        }
        self.counts()
    }

    /// Whether the inner store answers a look at each of these counters.
    async fn answers(&self, counters: Vec<Counter>) -> bool {
        tokio::task::yield_now().await;
        for counter in counters {
            if self.inner.decide(&[Check::new(counter, 0)], Deadline::none()).wait().await.is_err() {
                return false;
            }
        }
        true
    }

    /// The counters of the lease calls in flight.
    fn asked(&self) -> Vec<Counter> {
        self.shards.each().flat_map(|shard| shard.asked()).collect()
    }

    fn take_all(&self) -> Vec<Back> {
        let mut backs = Vec::new();
        self.shards.each().for_each(|mut shard| shard.clear(&mut backs));
        backs
    }

    /// Settles what was spent from a lease, by a request that took others `before`.
    pub(super) fn settle(&self, before: &[Taken], taken: &Taken, change: Change) -> Settling {
        if let Change::Refund(units) = change {
            let counts = |returned: u64| {
                let mut shard = self.shards.lock(self.shards.hash(&taken.counter));
                shard.counts.spent = shard.counts.spent.saturating_sub(units);
                shard.counts.returned += returned;
            };
            if self.put_back(&taken.counter, taken.stamp, units) {
                counts(0);
                return Answer::Ready(Ok(vec![Applied::new(units, taken.stamp)]));
            }
            counts(units);
        }
        let Some(&store) = self.inner_id.get() else {
            return Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)]));
        };
        let receipt = Receipt::new(store, before.iter().chain([taken]).cloned());
        self.inner.settle(receipt, &[Settlement { check: before.len(), change }])
    }

    fn put_back(&self, counter: &Counter, stamp: u64, units: u64) -> bool {
        let (hash, now) = (self.shards.hash(counter), self.now());
        let mut shard = self.shards.lock(hash);
        let Some(entry) = shard.find(hash, counter) else { return false };
        let mut lots = entry.lots.iter_mut().filter(|lot| lot.stamp() == stamp);
        lots.any(|lot| lot.put_back(units, now))
    }
}

/// A task that sweeps; one that ends with its runtime makes room for another.
struct Sweeping(Weak<Shared>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.swept.store(false, Ordering::SeqCst);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let backs = self.take_all();
        self.give_back(backs, self.now());
        self.counts().tell();
    }
}
