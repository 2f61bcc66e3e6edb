//! Paying: what was admitted is charged, and then what remains is looked at.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::entry::{Entry, Paid};
use super::shared::Shared;
use crate::Error;
use crate::core::error::Kind;
use crate::store::{Answer, Applied, Change, Check, Counter, Deadline, Store};

/// How long an answer is waited for in the background, if the inner store does not bound that.
const PATIENCE: Duration = Duration::from_millis(500);

/// A charge on its way. Dropped before it is known to have arrived, its units are owed again, but not
/// those that were on their way for the second time.
pub(super) struct Charge {
    shared: Arc<Shared>,
    hash: u64,
    counter: Counter,
    /// Units on their way for the first time.
    first: u64,
    /// Units that may have been counted before.
    again: u64,
    /// Whether it has left, and may be counted.
    sent: bool,
    /// Whether it is known what became of it.
    ended: bool,
    told: watch::Sender<Option<Arc<Error>>>,
}

impl Shared {
    /// Puts all that is owed and not on its way into a charge.
    pub(super) fn charge(self: &Arc<Self>, entry: &mut Entry) -> Option<Charge> {
        let (first, again) = entry.ledger.begin()?;
        let (told, paid) = watch::channel(None);
        entry.paid = Some(paid);
        let (shared, hash, counter) = (Arc::clone(self), entry.hash, entry.counter.clone());
        Some(Charge { shared, hash, counter, first, again, sent: false, ended: false, told })
    }

    /// Learns what remains, unless the inner store was given a request meanwhile.
    pub(super) async fn look(&self, hash: u64, counter: &Counter) {
        let asked = |entry: &mut Entry| (entry.turns, entry.counted(), entry.counter.clone());
        let asked = self.shards.lock(hash).find(hash, counter).map(asked);
        // The key's own quota: it may have changed since its task began.
        let Some((turns, before, counter)) = asked else { return };
        let (sent, look) = (Instant::now(), [Check::new(counter.clone(), 0)]);
        let Ok(decided) = self.bounded(self.inner.decide(&look, Deadline::none())).await else { return };
        let _ = self.inner_id.set(decided.receipt.store());
        let mut shard = self.shards.lock(hash);
        let entry = shard.find(hash, &counter).filter(|entry| entry.is_as_before(turns));
        if let (Some(entry), Some(outcome)) = (entry, decided.decision.outcomes().first()) {
            entry.learn(outcome, outcome.remaining(), self.allowance, (sent, before));
        }
    }

    /// Waits for an answer that nobody else bounds.
    async fn bounded<T>(&self, answer: Answer<Result<T, Error>>) -> Result<T, Error> {
        let limit = self.inner.budget().unwrap_or(PATIENCE);
        let late = |late| Error::new(Kind::Timeout, format!("a debt was not paid in {limit:?}")).with_source(late);
        timeout(limit, answer.wait()).await.map_err(late)?
    }

    /// Pays at once what is owed for a counter.
    pub(super) async fn pay(self: &Arc<Self>, hash: u64, counter: &Counter) -> Result<(), Error> {
        while let Some(mut paid) = self.start_paying(hash, counter) {
            let _ = paid.changed().await;
            if let Some(error) = &*paid.borrow() {
                return Err(error.shared());
            }
        }
        Ok(())
    }

    /// The charge on its way, or a new one; `None` if nothing is owed.
    fn start_paying(self: &Arc<Self>, hash: u64, counter: &Counter) -> Option<Paid> {
        let mut shard = self.shards.lock(hash);
        let entry = shard.find(hash, counter)?;
        let charge = self.charge(entry);
        let paid = entry.paid.clone().filter(|_| entry.owes());
        // A runtime that ends drops what it is given, and that locks.
        drop(shard);
        if let Some(charge) = charge {
            // A caller that goes away does not take it along.
            tokio::spawn(charge.send());
        }
        paid
    }

    /// Pays all debts, and makes no more.
    pub(super) async fn close(self: &Arc<Self>) -> Result<(), Error> {
        self.closed.store(true, Ordering::SeqCst);
        let mut debtors = Vec::new();
        self.shards.each().for_each(|shard| debtors.extend(shard.debtors().cloned()));
        for counter in debtors {
            self.pay(self.shards.hash(&counter), &counter).await?;
        }
        Ok(())
    }
}

impl Charge {
    pub(super) async fn send(mut self) -> Result<(), Error> {
        let charged = self.attempt().await;
        match &charged {
            Ok(applied) => self.arrived(applied),
            Err(_) => self.failed(),
        }
        let error = charged.as_ref().err().map(|error| Arc::new(error.shared()));
        self.told.send_replace(error);
        charged.map(drop)
    }

    /// Sends it. What may have been counted is sent once more at most, so not before the store answers.
    async fn attempt(&mut self) -> Result<Applied, Error> {
        let shared = Arc::clone(&self.shared);
        if self.again > 0 {
            shared.bounded(shared.inner.decide(&[Check::new(self.counter.clone(), 0)], Deadline::none())).await?;
        }
        self.sent = true;
        shared.bounded(shared.inner.adjust(&self.counter, Change::Charge(self.first + self.again))).await
    }

    /// Gives back what was taken back while it was on its way.
    fn arrived(&mut self, applied: &Applied) {
        self.ended = true;
        let mut shard = self.shared.shards.lock(self.hash);
        let back = shard.find(self.hash, &self.counter).map_or(0, |entry| entry.ledger.arrived(applied));
        drop(shard);
        if back > 0 {
            drop(self.shared.refund_charged(&self.counter, back, applied.stamp));
        }
    }

    /// Leaves the rest of it to be paid.
    fn failed(&mut self) {
        self.ended = true;
        if self.sent && self.again > 0 {
            let units = self.again;
            tracing::warn!(units, "a charge may not have been counted: two answers to it were lost");
        }
        if let Some(entry) = self.shared.shards.lock(self.hash).find(self.hash, &self.counter) {
            if self.sent {
                entry.ledger.lost();
            } else {
                entry.ledger.not_sent();
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.ended {
            self.failed();
        }
    }
}
