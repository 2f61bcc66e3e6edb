//! What the inner store is given outside of the way of a request: metered charges and resets.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::entry::Entry;
use super::epoch::{marked, unmarked};
use super::shared::Shared;
use crate::Error;
use crate::core::error::Kind;
use crate::store::{Answer, Applied, Change, Counter, Receipt, Settlement, Settling, Store};

/// Units charged besides what a request took, until they have arrived.
struct Metered {
    shared: Arc<Shared>,
    hash: u64,
    counter: Counter,
    units: u64,
    is_stray: bool,
}

/// A reset on its way: nothing is admitted here meanwhile, for it would not be known on which side of it.
struct Resetting {
    shared: Arc<Shared>,
    hash: u64,
    counter: Counter,
    is_stray: bool,
}

impl Shared {
    /// Charges more than was admitted here: at once, and not with what is owed.
    pub(super) fn charge_more(self: &Arc<Self>, counter: &Counter, units: u64) -> Settling {
        let Ok(permit) = Arc::clone(&self.adjusting).try_acquire_owned() else {
            tracing::warn!("a settlement was not sent: too many are on their way");
            return Answer::Ready(Ok(vec![Applied::new(0, 0)]));
        };
        let epoch = self.epoch(counter);
        let guards = (self.meter(counter, units), permit);
        let done = move |applied: Result<Applied, Error>| {
            let applied = applied.inspect_err(|error| {
                tracing::warn!(error = format!("{error:#}"), "a settlement may not have arrived");
            })?;
            Ok(vec![Applied { stamp: marked(applied.stamp, epoch), ..applied }])
        };
        self.follow(self.inner.adjust(counter, Change::Charge(units)), guards, done)
    }

    /// Settles what the inner store decided.
    pub(super) fn settle_there(self: &Arc<Self>, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if changes.is_empty() {
            return self.inner.settle(receipt, changes);
        }
        let epochs: Vec<u64> = receipt.taken().iter().map(|taken| self.epoch(&taken.counter)).collect();
        let mut epoch = epochs.iter();
        let receipt = receipt.each_taken(|taken| match unmarked(taken.stamp, *epoch.next().unwrap_or(&0)) {
            Some(stamp) => taken.stamp = stamp,
            None => taken.units = 0,
        });
        let charge = |settlement: &Settlement| match settlement.of(&receipt) {
            Some((taken, Change::Charge(units))) => self.meter(&taken.counter, units),
            _ => None,
        };
        let metered: Vec<Metered> = changes.iter().filter_map(charge).collect();
        let settling = self.inner.settle(receipt, changes);
        if metered.is_empty() && epochs.iter().all(|epoch| *epoch == 0) {
            return settling;
        }
        let epochs: Vec<u64> = changes.iter().map(|change| epochs.get(change.check).copied().unwrap_or(0)).collect();
        self.follow(settling, metered, move |applied| {
            let each = applied?.into_iter().zip(epochs);
            Ok(each.map(|(applied, epoch)| Applied { stamp: marked(applied.stamp, epoch), ..applied }).collect())
        })
    }

    /// Changes a counter outside any decision.
    pub(super) fn adjust(self: &Arc<Self>, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let metered = if let Change::Charge(units) = change { self.meter(counter, units) } else { None };
        let answer = self.inner.adjust(counter, change);
        if metered.is_none() { answer } else { self.follow(answer, metered, |applied| applied) }
    }

    /// Resets a counter: nothing is owed for it, nor given back, whatever was taken before.
    pub(super) fn reset(self: &Arc<Self>, counter: &Counter) -> Answer<Result<(), Error>> {
        let resetting = self.forget(counter);
        self.follow(self.inner.reset(counter), resetting, |done| done)
    }

    /// Lowers what is left by units that are charged now.
    fn meter(self: &Arc<Self>, counter: &Counter, units: u64) -> Option<Metered> {
        if counter.quota.facts().stands_in_line {
            return None;
        }
        let hash = self.shards.hash(counter);
        let mut shard = self.shards.lock(hash);
        let entry = shard.make(hash, counter, Instant::now(), self.fresh());
        let is_stray = entry.map(|entry| entry.begin_metered(units)).is_none();
        shard.strays += usize::from(is_stray);
        Some(Metered { shared: Arc::clone(self), hash, counter: counter.clone(), units, is_stray })
    }

    fn forget(self: &Arc<Self>, counter: &Counter) -> Resetting {
        let hash = self.shards.hash(counter);
        let mut shard = self.shards.lock(hash);
        let is_stray = shard.make(hash, counter, Instant::now(), self.fresh()).map(Entry::enter).is_none();
        shard.strays += usize::from(is_stray);
        shard.forget(hash, counter);
        Resetting { shared: Arc::clone(self), hash, counter: counter.clone(), is_stray }
    }

    /// How often a counter was reset.
    pub(super) fn epoch(&self, counter: &Counter) -> u64 {
        let hash = self.shards.hash(counter);
        self.shards.lock(hash).epoch(hash, counter)
    }

    /// Sees to it that a change is made whether or not its answer is waited for, and keeps its `guards` so
    /// long.
    fn follow<T: Send + 'static, U: Send + 'static>(
        &self,
        answer: Answer<Result<T, Error>>,
        guards: impl Send + 'static,
        done: impl FnOnce(Result<T, Error>) -> Result<U, Error> + Send + 'static,
    ) -> Answer<Result<U, Error>> {
        let pending = match answer {
            Answer::Ready(answer) => return Answer::Ready(done(answer)),
            Answer::Pending(pending) => pending,
        };
        let guarded = async move {
            let answer = pending.await;
            drop(guards);
            done(answer)
        };
        let Some(runtime) = self.runtime() else { return Answer::pending(guarded) };
        let (told, answered) = oneshot::channel();
        runtime.spawn(async move {
            // Nobody has to wait for it.
            let _ = told.send(guarded.await);
        });
        Answer::pending(async move { answered.await.unwrap_or_else(|_| Err(stopped())) })
    }
}

fn stopped() -> Error {
    Error::new(Kind::Store, "a change was stopped: its runtime has ended")
}

impl Drop for Metered {
    fn drop(&mut self) {
        let mut shard = self.shared.shards.lock(self.hash);
        shard.strays -= usize::from(self.is_stray);
        match shard.find(self.hash, &self.counter) {
            // What was learnt meanwhile does not know of it.
            Some(entry) if self.is_stray => entry.distrust(),
            Some(entry) => entry.end_metered(self.units),
            None => {}
        }
    }
}

impl Drop for Resetting {
    fn drop(&mut self) {
        let mut shard = self.shared.shards.lock(self.hash);
        shard.strays -= usize::from(self.is_stray);
        shard.forget(self.hash, &self.counter);
        match shard.find(self.hash, &self.counter) {
            Some(entry) if self.is_stray => entry.distrust(),
            Some(entry) => drop(entry.leave(0)),
            None => {}
        }
    }
}
