//! Requests the inner store decides, and their effect on balances.
//!
//! The checks come in; the inner store's decision goes out, with stamps that carry the epochs of the keys. Their costs
//! lower what is left of the keys from the start to the end, so that their keys admit only what is left beside them.
//! Debts that what is left may not cover are charged first.
//!
//! | step | under locks | what is done |
//! | --- | --- | --- |
//! | `start` | yes | each key's balance is entered, or its part gets a stray |
//! | `charge_debts` | no | debts are charged, within the deadline, if what is left may not cover them |
//! | the call | no | the inner store decides |
//! | `leave` | yes | balances are left, with what remains |
//!
//! The inner store may have admitted units that this process admitted meanwhile, as other processes took what was left.
//! Such an admission is refunded, and the request is decided once more, *alone*: its keys admit nothing until the end,
//! and their debts are charged first.
//!
//! # Cancellation
//!
//! A request that is dropped leaves its balances, too: without a result, so what is left does not rise by it.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::balance::{Balance, Sent};
use super::charge::charge_debts;
use super::epoch::marked;
use super::shared::SharedBalances;
use crate::core::error::Kind;
use crate::core::{Decision, Error};
use crate::store::{Answer, Change, Check, Deadline, Decided, Receipt, Settlement, Store};

/// A request on its way to the inner store. If it is dropped without a decision, balances are not updated.
struct Direct {
    /// Where the keys' balances are.
    shared: Arc<SharedBalances>,
    /// What the inner store is to decide.
    checks: SmallVec<[Check; 2]>,
    /// The state of each check's key, in the order of the checks.
    keys: SmallVec<[KeyBefore; 2]>,
    /// Whether its keys admit nothing meanwhile.
    is_alone: bool,
    /// Whether its balances were left.
    has_left: bool,
}

/// The state of a key when the inner store was called.
#[derive(Clone, Copy)]
struct KeyBefore {
    /// How often the key was reset.
    epoch: u64,
    /// Where the cost is accounted for meanwhile.
    place: Place,
}

/// Where the cost of a check is accounted for while the inner store decides.
#[derive(Clone, Copy)]
enum Place {
    /// Looks and queues need no entry.
    Unneeded,
    /// There is no room for an entry.
    Stray,
    /// In the balance, with what was counted of charges when the inner store was called.
    Entry(Sent),
}

/// How the inner store is called: `decide` or `probe`.
pub(super) type Call = fn(&dyn Store, &[Check], Deadline) -> Answer<Result<Decided, Error>>;

/// A decision, or what has to be decided once more.
type Ended = Result<Result<Decided, Error>, Box<Over>>;

/// An admission by the inner store of units that this process had admitted as well.
struct Over {
    shared: Arc<SharedBalances>,
    checks: SmallVec<[Check; 2]>,
    receipt: Receipt,
}

/// Has the inner store decide, after those debts of the request's keys have been charged that may not be covered.
///
/// Looks pass through as they are. Charging has the earlier one of the deadline and the inner store's budget, and
/// the inner store keeps the deadline by itself.
pub(super) fn decide_there(
    shared: &Arc<SharedBalances>,
    call: Call,
    checks: &[Check],
    deadline: Deadline,
) -> Answer<Result<Decided, Error>> {
    if checks.iter().all(|check| check.cost == 0) {
        return call(&*shared.inner, checks, deadline);
    }
    let _ = shared.runtime();
    let last = shared.budget().map_or(deadline, |budget| deadline.earlier(Deadline::after(budget)));
    let (mut direct, must_charge) = Direct::start(shared, checks, false);
    if must_charge {
        return Answer::pending(async move {
            let decided = direct.charge_and_call(call, last).await;
            finish(direct.end(decided), call, last).await
        });
    }
    match call(&*shared.inner, checks, deadline) {
        Answer::Ready(decided) => match direct.end(decided) {
            Ok(decided) => Answer::Ready(decided),
            over @ Err(_) => Answer::pending(finish(over, call, last)),
        },
        Answer::Pending(pending) => Answer::pending(async move { finish(direct.end(pending.await), call, last).await }),
    }
}

/// Returns the decision, made once more and alone if need be.
async fn finish(ended: Ended, call: Call, last: Deadline) -> Result<Decided, Error> {
    let Over { shared, checks, receipt } = match ended {
        Ok(decided) => return decided,
        Err(over) => *over,
    };
    let units = receipt.taken().iter().map(|taken| taken.units).enumerate();
    let refunds: Vec<_> = units.map(|(index, units)| Settlement::new(index, Change::Refund(units))).collect();
    // It is sent, whether or not its result is waited for.
    drop(shared.inner.settle(receipt, &refunds));
    let (mut direct, _) = Direct::start(&shared, &checks, true);
    let decided = direct.charge_and_call(call, last).await?;
    direct.leave(Some(&decided.decision));
    Ok(direct.marked(decided))
}

/// The error of a request whose debts were not charged within the deadline.
fn not_in_time(late: Elapsed) -> Error {
    Error::new(Kind::Timeout, "the debts of the request's keys were not charged in time").with_source(late)
}

impl Direct {
    /// Notes the state of each key, and lowers what is left of it; the second value is whether debts have to be charged
    /// first.
    fn start(shared: &Arc<SharedBalances>, checks: &[Check], is_alone: bool) -> (Self, bool) {
        let (now, mut must_charge) = (Instant::now(), false);
        let mut locked = shared.lock_all(checks);
        let keys = checks.iter().enumerate().map(|(index, check)| {
            let (hash, balances) = locked.of(index);
            let epoch = balances.epoch(hash, &check.counter);
            if check.cost == 0 || check.counter.quota.facts().only_in_store() {
                return KeyBefore { epoch, place: Place::Unneeded };
            }
            let Some(balance) = balances.make(hash, &check.counter, now, shared.fresh()) else {
                balances.strays += 1;
                return KeyBefore { epoch, place: Place::Stray };
            };
            balance.enter(check);
            if is_alone {
                balance.hold();
            }
            must_charge |= balance.must_charge();
            KeyBefore { epoch: balance.epoch, place: Place::Entry(balance.sent()) }
        });
        let keys = keys.collect();
        drop(locked);
        let (shared, checks) = (Arc::clone(shared), checks.iter().cloned().collect());
        (Self { shared, checks, keys, is_alone, has_left: false }, must_charge)
    }

    /// Charges the debts of its keys, then has the inner store decide.
    async fn charge_and_call(&mut self, call: Call, deadline: Deadline) -> Result<Decided, Error> {
        let charging = self.charge_debts();
        match deadline.instant() {
            Some(at) => timeout_at(at, charging).await.map_err(not_in_time)??,
            None => charging.await?,
        }
        self.note_charges();
        // It keeps the deadline by itself, so that a late decision is refunded.
        call(&*self.shared.inner, &self.checks, deadline).wait().await
    }

    /// Charges the debts of its keys, one after the other; ends with the first error.
    async fn charge_debts(&self) -> Result<(), Error> {
        for Check { counter, .. } in &self.checks {
            charge_debts(&self.shared, self.shared.hash(counter), counter).await?;
        }
        Ok(())
    }

    /// Notes what was counted of charges once more: the inner store is called now.
    fn note_charges(&mut self) {
        let mut locked = self.shared.lock_all(&self.checks);
        for (index, (check, key)) in self.checks.iter().zip(&mut self.keys).enumerate() {
            let (hash, balances) = locked.of(index);
            if let (Place::Entry(sent), Some(balance)) = (&mut key.place, balances.find(hash, &check.counter)) {
                *sent = balance.sent();
            }
        }
    }

    /// Updates the balances by what the inner store decided.
    fn end(mut self, decided: Result<Decided, Error>) -> Ended {
        let decided = match decided {
            Ok(decided) => decided,
            Err(error) => return Ok(Err(error)),
        };
        if self.leave(Some(&decided.decision)) {
            return Ok(Ok(self.marked(decided)));
        }
        let _ = self.shared.inner_id.set(decided.receipt.store());
        let (shared, checks) = (Arc::clone(&self.shared), self.checks.clone());
        Err(Box::new(Over { shared, checks, receipt: decided.receipt }))
    }

    /// Marks the stamps of a decision.
    fn marked(&self, Decided { decision, receipt }: Decided) -> Decided {
        let _ = self.shared.inner_id.set(receipt.store());
        let mut keys = self.keys.iter();
        let receipt = receipt.each_taken(|taken| {
            taken.stamp = marked(taken.stamp, keys.next().map_or(0, |key| key.epoch));
        });
        Decided { decision, receipt }
    }

    /// Leaves the balances, with what remains if the inner store has decided. Returns whether that covers what was
    /// admitted here, if the request was admitted.
    fn leave(&mut self, decision: Option<&Decision>) -> bool {
        self.has_left = true;
        let mut locked = self.shared.lock_all(&self.checks);
        let mut is_covered = true;
        for (index, (check, key)) in self.checks.iter().zip(&self.keys).enumerate() {
            let (hash, balances) = locked.of(index);
            let sent = match key.place {
                Place::Unneeded => continue,
                Place::Stray => {
                    balances.strays -= 1;
                    // Results received meanwhile do not include it.
                    balances.find(hash, &check.counter).into_iter().for_each(Balance::shut);
                    continue;
                }
                Place::Entry(sent) => sent,
            };
            let Some(balance) = balances.find(hash, &check.counter) else { continue };
            balance.end(check.cost);
            if self.is_alone {
                balance.release();
            }
            if let Some(outcome) = decision.and_then(|decision| decision.outcomes().get(index)) {
                let is_enough = balance.update(outcome, self.shared.allowance, sent, check.cost);
                is_covered &= is_enough || !outcome.is_allowed();
            }
        }
        is_covered || decision.is_none_or(|decision| !decision.is_allowed())
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        if !self.has_left {
            self.leave(None);
        }
    }
}
