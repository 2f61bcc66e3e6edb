//! Paying: what was admitted is charged, and then what remains is looked at.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::entry::{Entry, Paid};
use super::shared::Shared;
use crate::Error;
use crate::store::{Change, Check, Counter, Store};

/// A charge on its way. Dropped before it is known to have arrived, its units are owed again.
struct Charge {
    shared: Arc<Shared>,
    hash: u64,
    counter: Counter,
    units: u64,
    told: watch::Sender<Option<Arc<Error>>>,
}

impl Shared {
    /// Pays at each tick until nothing is owed, and looks each time.
    pub(super) async fn pay_each_tick(self: Arc<Self>, hash: u64, counter: Counter) {
        loop {
            sleep(self.tick).await;
            let charge = {
                let mut shard = self.shards.lock(hash);
                let Some(entry) = shard.find(hash, &counter) else { return };
                if !entry.owes() {
                    entry.ticks = false;
                    return;
                }
                self.charge(entry)
            };
            if let Some(charge) = charge
                && charge.send().await.is_ok()
            {
                self.look(hash, &counter).await;
            }
        }
    }

    /// Puts all that is owed and not on its way into a charge.
    fn charge(self: &Arc<Self>, entry: &mut Entry) -> Option<Charge> {
        if entry.paying > 0 || entry.unpaid == 0 {
            return None;
        }
        let (told, paid) = watch::channel(None);
        entry.paying = std::mem::take(&mut entry.unpaid);
        entry.paid = Some(paid);
        let (hash, units, counter) = (entry.hash, entry.paying, entry.counter.clone());
        Some(Charge { shared: Arc::clone(self), hash, counter, units, told })
    }

    /// Learns what remains, unless the inner store was given a request meanwhile.
    async fn look(&self, hash: u64, counter: &Counter) {
        let turns = |shared: &Self| shared.shards.lock(hash).find(hash, counter).map(|entry| entry.turns);
        let (before, sent) = (turns(self), Instant::now());
        let Ok(decided) = self.inner.decide(&[Check::new(counter.clone(), 0)]).wait().await else { return };
        let mut shard = self.shards.lock(hash);
        let entry = shard.find(hash, counter).filter(|entry| entry.direct == 0 && Some(entry.turns) == before);
        if let (Some(entry), Some(outcome)) = (entry, decided.decision.outcomes().first()) {
            entry.learn(outcome, self.allowance, sent);
        }
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
        if let Some(charge) = self.charge(entry) {
            // A caller that goes away does not take it along.
            tokio::spawn(charge.send());
        }
        entry.paid.clone().filter(|_| entry.owes())
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
    /// Sends it; what may not have arrived is owed again, so it is paid twice rather than never.
    async fn send(mut self) -> Result<(), Error> {
        let charged = self.shared.inner.adjust(&self.counter, Change::Charge(self.units)).wait().await;
        let units = std::mem::take(&mut self.units);
        self.end(if charged.is_ok() { 0 } else { units });
        let error = charged.as_ref().err().map(|error| Arc::new(error.shared()));
        self.told.send_replace(error);
        charged
    }

    fn end(&self, owed: u64) {
        if let Some(entry) = self.shared.shards.lock(self.hash).find(self.hash, &self.counter) {
            entry.paying = 0;
            entry.unpaid += owed;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.units > 0 {
            self.end(self.units);
        }
    }
}
