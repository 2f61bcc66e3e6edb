//! Lease calls: one in flight for a key, and none depends on a caller.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle as Runtime;
use tokio::sync::OwnedSemaphorePermit;

use super::entry::LEAST;
use super::lot::{Lot, lifetime};
use super::shared::Shared;
use crate::store::{Answer, Check, Counter, Deadline, Decided, Store};
use crate::{Error, Outcome};

/// Lease calls in flight at most; more are not made.
pub(super) const MOST_CALLS: u32 = 4_096;

/// A lease to ask for.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) hash: u64,
    pub(super) counter: Counter,
    pub(super) units: u64,
    /// Which call it is: its answer is for no other.
    pub(super) call: u64,
}

/// A lease call in flight. Dropped without an answer it counts as failed, as when a runtime ends.
struct Asked {
    shared: Arc<Shared>,
    want: Option<Want>,
    /// When it was sent.
    sent: u64,
    /// Whether it asks for what an earlier one was told remains.
    again: bool,
    _permit: OwnedSemaphorePermit,
}

impl Shared {
    /// Asks for a lease; returns whether there is an answer already.
    pub(super) fn ask(self: &Arc<Self>, want: Want, again: bool) -> bool {
        let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else {
            self.rest(&want, 0);
            return false;
        };
        let check = Check::new(want.counter.clone(), want.units);
        let sent = self.now();
        let mut asked = Asked { shared: Arc::clone(self), want: Some(want), sent, again, _permit: permit };
        match self.inner.decide(&[check], Deadline::none()) {
            Answer::Ready(answer) => {
                asked.answered(answer);
                true
            }
            Answer::Pending(call) => {
                if let Ok(runtime) = Runtime::try_current() {
                    runtime.spawn(async move { asked.answered(call.await) });
                    self.sweep_by_task();
                }
                false
            }
        }
    }

    /// Keeps a lease that came. One that came too late goes back, and one that was asked for before
    /// a reset is lost: nobody knows on which side of it the units were charged.
    fn keep(&self, want: &Want, decided: Decided, sent: u64) {
        let now = self.now();
        let known = *self.inner_id.get_or_init(|| decided.receipt.store()) == decided.receipt.store();
        let lot = Lot::new(decided, sent, now);
        let mut backs = Vec::new();
        let mut shard = self.shards.lock(want.hash);
        shard.counts.leased += want.units;
        let (closed, quiet) = (self.closed.load(Ordering::SeqCst), now + lifetime(&want.counter.quota));
        match shard.find(want.hash, &want.counter).filter(|entry| entry.asking == Some(want.call)) {
            None if closed => backs.push((lot, want.counter.quota.limit())),
            None => {
                shard.counts.lost += want.units;
                drop(shard);
                return lot.forget(&*self.inner);
            }
            Some(entry) => {
                entry.asking = None;
                if closed || !known || lot.is_over(now) {
                    entry.quiet_until = quiet;
                    backs.push((lot, want.counter.quota.limit()));
                } else {
                    entry.add(lot, &mut backs);
                }
            }
        }
        drop(shard);
        self.give_back(backs, now);
    }

    /// Asks no more for a while. What a failed call may have charged is lost.
    fn rest(&self, want: &Want, lost: u64) {
        let now = self.now();
        let mut shard = self.shards.lock(want.hash);
        shard.counts.leased += lost;
        shard.counts.lost += lost;
        if let Some(entry) = shard.find(want.hash, &want.counter).filter(|entry| entry.asking == Some(want.call)) {
            (entry.asking, entry.quiet_until) = (None, now + lifetime(&want.counter.quota));
        }
    }
}

impl Asked {
    fn answered(&mut self, answer: Result<Decided, Error>) {
        let Some(want) = self.want.take() else { return };
        match answer {
            Ok(decided) if decided.decision.is_allowed() && !decided.receipt.taken().is_empty() => {
                self.shared.keep(&want, decided, self.sent);
            }
            Ok(decided) => self.denied(want, &decided),
            Err(error) => {
                tracing::debug!(error = format!("{error:#}"), "a lease call failed");
                self.shared.rest(&want, want.units);
            }
        }
    }

    /// Asks once more, for what remains, if that is worth a call.
    fn denied(&self, want: Want, decided: &Decided) {
        let left = decided.decision.outcomes().first().map_or(0, Outcome::remaining).min(want.units);
        if self.again || left < LEAST || decided.decision.is_allowed() {
            return self.shared.rest(&want, 0);
        }
        self.shared.ask(Want { units: left, ..want }, true);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(want) = self.want.take() {
            self.shared.rest(&want, want.units);
        }
    }
}
