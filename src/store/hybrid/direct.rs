//! Requests the inner store decides, and their effect on balances.
//!
//! The checks come in; the inner store's decision goes out, with stamps that carry the epochs of the keys. First
//! the debts of the keys are charged, so that the inner store decides with all units counted. From the start to
//! the end none of the keys admits anything here, since what it has left is about to change.
//!
//! | step | under locks | what is done |
//! | --- | --- | --- |
//! | `start` | yes | each key's balance is entered, or its part gets a stray |
//! | `charge_debts` | no | debts are charged, within the deadline |
//! | the call | no | the inner store decides |
//! | drop | yes | balances are left, with what remains |
//!
//! # Cancellation
//!
//! A request that is dropped ends in the last step, too: its result is unknown, and its keys admit nothing before the
//! next look or decision.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::balance::Counted;
use super::charge::charge_debts;
use super::epoch::marked;
use super::shared::SharedBalances;
use crate::core::error::Kind;
use crate::core::{Error, Outcome};
use crate::store::{Answer, Ask, Check, Deadline, Decided, Store};

/// A request on its way to the inner store. Its keys admit nothing here meanwhile; if it is dropped without
/// a decision, balances are not updated.
struct Direct {
    /// Where the keys' balances are.
    shared: Arc<SharedBalances>,
    /// What the inner store is to decide.
    checks: SmallVec<[Check; 2]>,
    /// The state of each check's key, in the order of the checks.
    keys: SmallVec<[KeyBefore; 2]>,
    /// When the request began: the age of its result.
    sent: Instant,
    /// What the inner store decided, if it did.
    outcomes: Option<SmallVec<[Outcome; 2]>>,
}

/// The state of a key when the inner store was called.
#[derive(Clone, Copy)]
struct KeyBefore {
    /// How often the key was reset.
    epoch: u64,
    /// How the key is kept from admitting meanwhile.
    held: Held,
}

/// How a key is kept from admitting while the inner store decides.
#[derive(Clone, Copy)]
enum Held {
    /// Looks and queues need no entry.
    Unneeded,
    /// There is no room for an entry.
    Stray,
    /// Its balance was entered, when so much of its metered charges was counted.
    Entry(Counted),
}

/// Has the inner store decide, after the debts of the request's keys have been charged.
///
/// Looks pass through as they are. Charging has the earlier one of the deadline and the inner store's budget, and
/// the inner store keeps the deadline by itself.
pub(super) fn decide_there(shared: &Arc<SharedBalances>, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
    if checks.iter().all(|check| check.cost == 0) {
        return shared.inner.decide(checks, ask);
    }
    let _ = shared.runtime();
    let (direct, has_debt) = Direct::start(shared, checks);
    if !has_debt {
        return shared.inner.decide(checks, ask).map(|decided| direct.finish(decided));
    }
    let budget = shared.budget().map_or(Deadline::none(), Deadline::after);
    let deadline = ask.deadline.earlier(budget);
    Answer::pending(async move {
        let charge_result = direct.charge_debts();
        match deadline.instant() {
            Some(at) => timeout_at(at, charge_result).await.map_err(not_in_time)??,
            None => charge_result.await?,
        }
        // It keeps the deadline by itself, so that a late decision is refunded.
        let decided = direct.shared.inner.decide(&direct.checks, ask.deadline(deadline)).wait().await;
        direct.finish(decided)
    })
}

/// The error of a request whose debts were not charged within the deadline.
fn not_in_time(late: Elapsed) -> Error {
    Error::new(Kind::Timeout, "the debts of the request's keys were not charged in time").with_source(late)
}

impl Direct {
    /// Notes the state of each key, which admits nothing here from now on; the second value is whether
    /// there is a debt.
    fn start(shared: &Arc<SharedBalances>, checks: &[Check]) -> (Self, bool) {
        let (now, mut has_debt) = (Instant::now(), false);
        let mut locked = shared.lock_all(checks);
        let keys = checks.iter().enumerate().map(|(index, check)| {
            let (quota, (hash, balances)) = (check.counter.quota(), locked.of(index));
            let epoch = balances.epoch(hash, &check.counter);
            if check.cost == 0 || quota.facts().only_in_store() {
                return KeyBefore { epoch, held: Held::Unneeded };
            }
            let Some(balance) = balances.make(hash, &check.counter, now, shared.fresh()) else {
                balances.strays += 1;
                return KeyBefore { epoch, held: Held::Stray };
            };
            has_debt |= balance.has_debt();
            if balance.counter.quota() != quota {
                balance.counter = check.counter.clone();
            }
            KeyBefore { epoch: balance.epoch, held: Held::Entry(balance.enter()) }
        });
        let (shared, keys) = (Arc::clone(shared), keys.collect());
        (Self { shared, checks: checks.iter().cloned().collect(), keys, sent: now, outcomes: None }, has_debt)
    }

    /// Charges the debts of its keys, one after the other; ends with the first error.
    async fn charge_debts(&self) -> Result<(), Error> {
        for Check { counter, .. } in &self.checks {
            charge_debts(&self.shared, self.shared.hash(counter), counter).await?;
        }
        Ok(())
    }

    /// Notes what the inner store decided and marks its stamps; the balances are updated when `self` is dropped, which
    /// is at once.
    fn finish(mut self, decided: Result<Decided, Error>) -> Result<Decided, Error> {
        let Decided { decision, receipt } = decided?;
        let _ = self.shared.inner_id.set(receipt.store());
        self.outcomes = Some(decision.outcomes().iter().cloned().collect());
        let mut keys = self.keys.iter();
        let receipt = receipt.each_taken(|taken| {
            taken.stamp = marked(taken.stamp, keys.next().map_or(0, |key| key.epoch));
        });
        Ok(Decided { decision, receipt })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let mut locked = self.shared.lock_all(&self.checks);
        for (index, (check, key)) in self.checks.iter().zip(&self.keys).enumerate() {
            let (hash, balances) = locked.of(index);
            let counted = match key.held {
                Held::Unneeded => continue,
                Held::Stray => {
                    balances.strays -= 1;
                    None
                }
                Held::Entry(counted) => Some(counted),
            };
            let outcome = self.outcomes.as_ref().and_then(|outcomes| outcomes.get(index));
            let remaining = outcome.map_or(0, |outcome| if check.floor == 0 { outcome.remaining() } else { 0 });
            match (balances.find(hash, &check.counter), counted) {
                (Some(balance), Some(counted)) => {
                    let least = balance.leave(remaining);
                    if let (Some(least), Some(outcome)) = (least, outcome) {
                        balance.update(outcome, least, self.shared.allowance, (self.sent, counted));
                    }
                }
                // Results received meanwhile do not include it.
                (Some(balance), None) => balance.distrust(),
                (None, _) => {}
            }
        }
    }
}
