//! Charging what was admitted.
//!
//! All that is owed for a key and not on its way comes in as one [`Charge`]; it is sent to the inner store by
//! [`Change::Charge`], and how it went is reported to the key's ledger and to those who wait. A key has at most one
//! charge on its way. How it ends decides what becomes of its units:
//!
//! | end | first time | sent before |
//! | --- | --- | --- |
//! | arrived | charged; what was refunded meanwhile is returned | charged |
//! | failed before it was sent | owed as before | owed as before |
//! | failed or dropped after it was sent | sent once more, in a later charge | given up, with a warning |
//!
//! No lock is held across a call. A charge that is dropped, as when its runtime ends, has failed.

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
    /// Kept alive until the charge has ended.
    shared: Arc<SharedBalances>,
    /// The hash of the counter.
    hash: u64,
    /// With the quota that the key has now.
    counter: Counter,
    /// Units on their way for the first time.
    first: u64,
    /// Units that may have been counted before.
    again: u64,
    /// Whether it has left, and may be counted.
    sent: bool,
    /// Whether it is known what became of it.
    ended: bool,
    /// Where the result goes: `None` for success, or the error.
    told: watch::Sender<Option<Arc<Error>>>,
}

/// Charges at once what is owed for a counter, and waits until nothing is.
///
/// # Errors
///
/// The first error of a charge; what it was to charge is owed as before or given up, as the [page](self) has it.
pub(super) async fn pay(shared: &Arc<SharedBalances>, hash: u64, counter: &Counter) -> Result<(), Error> {
    while let Some(mut paid) = start_paying(shared, hash, counter) {
        let _ = paid.changed().await;
        if let Some(error) = &*paid.borrow() {
            return Err(error.shared());
        }
    }
    Ok(())
}

/// Returns the charge on its way, or begins one; `None` if nothing is owed. Must be called in a tokio runtime.
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

/// Charges all debts, and admits nothing here from now on. Ends with the first error.
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
    /// Puts all that is owed and not on its way into a charge; `None` if there is nothing, or if one is on its way.
    pub(super) fn begin(shared: &Arc<SharedBalances>, balance: &mut Balance) -> Option<Self> {
        let (first, again) = balance.ledger.begin()?;
        let (told, paid) = watch::channel(None);
        balance.paid = Some(paid);
        let (shared, hash, counter) = (Arc::clone(shared), balance.hash, balance.counter.clone());
        Some(Self { shared, hash, counter, first, again, sent: false, ended: false, told })
    }

    /// Sends the charge, and reports to the ledger how it went, before those who wait for it.
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

    /// Sends it. What may have been counted is sent once more at most, so not before the store has answered a look.
    async fn attempt(&mut self) -> Result<Applied, Error> {
        let shared = Arc::clone(&self.shared);
        if self.again > 0 {
            let look = Check::new(self.counter.clone(), 0);
            drop(shared.bounded(shared.inner.decide(&[look], Deadline::none())).await?);
        }
        self.sent = true;
        shared.bounded(shared.inner.adjust(&self.counter, Change::Charge(self.first + self.again))).await
    }

    /// Notes that it was applied, and refunds what was taken back while it was on its way.
    fn arrived(&mut self, applied: &Applied) {
        self.ended = true;
        let mut balances = self.shared.shards.lock(self.hash);
        let back = balances.find(self.hash, &self.counter).map_or(0, |balance| balance.ledger.arrived(applied));
        drop(balances);
        if back > 0 {
            drop(self.shared.refund_charged(&self.counter, back, applied.stamp));
        }
    }

    /// Notes that it failed: sent, its answer is lost; not sent, its units are owed as before.
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
