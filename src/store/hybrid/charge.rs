//! Charging what was admitted.
//!
//! The debt of a key that is not on its way comes in as one [`Charge`]; it is sent to the inner store by
//! [`Change::Charge`], and its result is reported to the key's ledger and to waiting tasks. A key has at most one
//! charge on its way. Its result decides over its units:
//!
//! | end | first time | sent before |
//! | --- | --- | --- |
//! | arrived | charged; what was refunded meanwhile is returned | charged |
//! | failed before it was sent | a debt as before | a debt as before |
//! | failed or dropped after it was sent | sent once more, in a later charge | given up, with a warning |
//!
//! No lock is held across a call. A charge that is dropped, as when its runtime ends, has failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::balance::{Balance, ChargeResult};
use super::shared::SharedBalances;
use crate::core::{Error, Lines};
use crate::store::{Applied, Ask, Change, Check, Counter, Store};

/// A charge on its way. Dropped before it is known to have arrived, its units are a debt again, except
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
    /// Whether its result was reported.
    ended: bool,
    /// Where the result goes: `None` for success, or the error.
    sender: watch::Sender<Option<Arc<Error>>>,
}

/// Charges the debt of a counter at once, and waits until there is none.
///
/// # Errors
///
/// The first error of a charge; its units are a debt as before or given up, as the [page](self) has it.
pub(super) async fn charge_debts(shared: &Arc<SharedBalances>, hash: u64, counter: &Counter) -> Result<(), Error> {
    while let Some(mut charge_result) = start_charging(shared, hash, counter) {
        let _ = charge_result.changed().await;
        if let Some(error) = &*charge_result.borrow() {
            return Err(error.shared());
        }
    }
    Ok(())
}

/// Returns the charge on its way, or begins one; `None` if there is no debt. Must be called in a tokio runtime.
fn start_charging(shared: &Arc<SharedBalances>, hash: u64, counter: &Counter) -> Option<ChargeResult> {
    let mut balances = shared.shards.lock(hash);
    let balance = balances.find(hash, counter)?;
    let charge = Charge::begin(shared, balance);
    let charge_result = balance.charge_result.clone().filter(|_| balance.has_debt());
    // A runtime that ends drops the task, which takes the lock.
    drop(balances);
    if let Some(charge) = charge {
        // It continues if its caller disconnects.
        tokio::spawn(charge.send());
    }
    charge_result
}

/// Charges all debts, and admits nothing here from now on. Ends with the first error.
pub(super) async fn close(shared: &Arc<SharedBalances>) -> Result<(), Error> {
    shared.closed.store(true, Ordering::SeqCst);
    let mut debtors = Vec::new();
    shared.shards.each().for_each(|balances| debtors.extend(balances.debtors().cloned()));
    for counter in debtors {
        charge_debts(shared, shared.hash(&counter), &counter).await?;
    }
    Ok(())
}

impl Charge {
    /// Puts the debt that is not on its way into a charge; `None` if there is nothing, or if one is on its way.
    pub(super) fn begin(shared: &Arc<SharedBalances>, balance: &mut Balance) -> Option<Self> {
        let (first, again) = balance.ledger.begin()?;
        let (sender, charge_result) = watch::channel(None);
        balance.charge_result = Some(charge_result);
        let (shared, hash, counter) = (Arc::clone(shared), balance.hash, balance.counter.clone());
        Some(Self { shared, hash, counter, first, again, sent: false, ended: false, sender })
    }

    /// Sends the charge, and reports its result to the ledger, then to waiting tasks.
    pub(super) async fn send(mut self) -> Result<(), Error> {
        let charged = self.attempt().await;
        match &charged {
            Ok(applied) => self.arrived(applied),
            Err(_) => self.failed(),
        }
        let error = charged.as_ref().err().map(|error| Arc::new(error.shared()));
        self.sender.send_replace(error);
        charged.map(drop)
    }

    /// Sends it. What may have been counted is sent once more at most, so not before the store has decided a look.
    async fn attempt(&mut self) -> Result<Applied, Error> {
        let shared = Arc::clone(&self.shared);
        if self.again > 0 {
            let look = Check::new(self.counter.clone(), 0);
            drop(shared.bounded(shared.inner.decide(&[look], Ask::default())).await?);
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

    /// Notes that it failed: sent, its result is lost; not sent, its units are a debt as before.
    fn failed(&mut self) {
        self.ended = true;
        if self.sent && self.again > 0 {
            static UNCERTAIN: Lines = Lines::new();
            let (policy, units) = (self.counter.policy().as_str(), self.again);
            UNCERTAIN.log(policy, |more| {
                tracing::warn!(
                    code = "settlement_uncertain",
                    policy,
                    units,
                    more,
                    "a charge may not have been counted: two replies to it were lost"
                );
            });
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
