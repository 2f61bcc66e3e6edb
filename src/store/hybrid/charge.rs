//! Paying: what was admitted is charged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::balance::{Balance, Paid};
use super::shared::SharedBalances;
use crate::core::Error;
use crate::store::{Applied, Change, Check, Counter, Deadline, Store};

/// A charge on its way. Dropped before it is known to have arrived, its units are owed again, but not
/// those that were on their way for the second time.
pub(super) struct Charge {
    shared: Arc<SharedBalances>,
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

/// Pays at once what is owed for a counter.
pub(super) async fn pay(shared: &Arc<SharedBalances>, hash: u64, counter: &Counter) -> Result<(), Error> {
    while let Some(mut paid) = start_paying(shared, hash, counter) {
        let _ = paid.changed().await;
        if let Some(error) = &*paid.borrow() {
            return Err(error.shared());
        }
    }
    Ok(())
}

/// The charge on its way, or a new one; `None` if nothing is owed.
fn start_paying(shared: &Arc<SharedBalances>, hash: u64, counter: &Counter) -> Option<Paid> {
    let mut balances = shared.shards.lock(hash);
    let balance = balances.find(hash, counter)?;
    let charge = Charge::begin(shared, balance);
    let paid = balance.paid.clone().filter(|_| balance.owes());
    // A runtime that ends drops what it is given, and that locks.
    drop(balances);
    if let Some(charge) = charge {
        // A caller that goes away does not take it along.
        tokio::spawn(charge.send());
    }
    paid
}

/// Pays all debts, and makes no more.
pub(super) async fn close(shared: &Arc<SharedBalances>) -> Result<(), Error> {
    shared.closed.store(true, Ordering::SeqCst);
    let mut debtors = Vec::new();
    shared.shards.each().for_each(|balances| debtors.extend(balances.debtors().cloned()));
    for counter in debtors {
        pay(shared, shared.hash(&counter), &counter).await?;
    }
    Ok(())
}

impl Charge {
    /// Puts all that is owed and not on its way into a charge.
    pub(super) fn begin(shared: &Arc<SharedBalances>, balance: &mut Balance) -> Option<Self> {
        let (first, again) = balance.ledger.begin()?;
        let (told, paid) = watch::channel(None);
        balance.paid = Some(paid);
        let (shared, hash, counter) = (Arc::clone(shared), balance.hash, balance.counter.clone());
        Some(Self { shared, hash, counter, first, again, sent: false, ended: false, told })
    }

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
        let mut balances = self.shared.shards.lock(self.hash);
        let back = balances.find(self.hash, &self.counter).map_or(0, |balance| balance.ledger.arrived(applied));
        drop(balances);
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
        if let Some(balance) = self.shared.shards.lock(self.hash).find(self.hash, &self.counter) {
            if self.sent {
                balance.ledger.lost();
            } else {
                balance.ledger.not_sent();
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
