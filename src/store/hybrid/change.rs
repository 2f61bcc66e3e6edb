//! What is changed after a request, or outside of any: refunds, metered charges and resets.
//!
//! A receipt or a counter comes in, with the change; what was applied goes out, mostly at once. Where units of a
//! receipt are decides the way of a refund:
//!
//! | the stamp is | the units are | a refund |
//! | --- | --- | --- |
//! | the number of a charge to come | a debt, not charged | lowers the debt |
//! | that of the charge on its way | perhaps charged | goes to the inner store once the charge has arrived |
//! | that of a charge whose result was lost | perhaps charged | keeps them from being charged again |
//! | that of one of the last 16 charges | charged | goes to the inner store, by that charge's stamp |
//! | the inner store's, of this epoch | charged | goes to the inner store |
//! | any other | unknown, or from before a reset | refunds nothing |
//!
//! Changes are followed by a task of their own, so that one whose caller is dropped is still made.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::epoch::{marked, unmarked};
use super::ledger::{Back, is_turn};
use super::shared::SharedBalances;
use super::under_way::{Metered, Resetting};
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::{Answer, Applied, Change, Counter, Receipt, Settlement, Settling, Store, Taken};

/// Limits how often `settlement_unsent` is logged.
static UNSENT: Lines = Lines::new();

/// Limits how often `settlement_uncertain` is logged.
static UNCERTAIN: Lines = Lines::new();

/// Settles what was admitted here, or after it, to a request that took others `before`.
///
/// What has been charged already is refunded in the inner store. A charge is sent at once, and is no debt.
pub(super) fn settle(shared: &Arc<SharedBalances>, before: &[Taken], taken: &Taken, change: Change) -> Settling {
    let units = match change {
        Change::Refund(units) => units,
        Change::Charge(units) => return charge_more(shared, &taken.counter, units),
        // Neither slots nor keys with a ban are ever admitted here.
        Change::Renew(_) | Change::Strike(_) | Change::Lift | Change::Reset => {
            return Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)]));
        }
    };
    let nothing = Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)]));
    if !is_turn(taken.stamp) {
        let epoch = shared.epoch(&taken.counter);
        let Some(stamp) = unmarked(taken.stamp, epoch) else { return nothing };
        let same = before.iter().filter(|part| part.counter == taken.counter && !is_turn(part.stamp));
        let there = same.filter_map(|part| Some(Taken { stamp: unmarked(part.stamp, epoch)?, ..part.clone() }));
        return shared.refund(there.collect(), Taken { stamp, ..taken.clone() }, units);
    }
    let hash = shared.hash(&taken.counter);
    let mut balances = shared.shards.lock(hash);
    let back = balances.find(hash, &taken.counter).map(|balance| balance.take_back(units, taken.stamp));
    drop(balances);
    match back {
        Some(Back::Charged { units, stamp }) => shared.refund_charged(&taken.counter, units, stamp),
        Some(Back::Uncharged(units) | Back::Deferred(units)) => {
            Answer::Ready(Ok(vec![Applied::new(units, taken.stamp)]))
        }
        Some(Back::Nothing) | None => nothing,
    }
}

/// Charges more than was admitted here: at once, and not with the debt.
///
/// With too many changes on their way it is not sent, and a warning is logged.
fn charge_more(shared: &Arc<SharedBalances>, counter: &Counter, units: u64) -> Settling {
    let Ok(permit) = Arc::clone(&shared.adjusting).try_acquire_owned() else {
        UNSENT.log(counter.policy(), |more| {
            let policy = counter.policy().as_str();
            tracing::warn!(
                code = "settlement_unsent",
                policy,
                more,
                "a settlement was not sent: too many are on their way"
            );
        });
        return Answer::Ready(Ok(vec![Applied::new(0, 0)]));
    };
    let epoch = shared.epoch(counter);
    let guards = (Metered::begin(shared, counter, units), permit);
    let policy = counter.policy().clone();
    let done = move |applied: Result<Applied, Error>| {
        let applied = applied.inspect_err(|error| {
            UNCERTAIN.log(&policy, |more| {
                let (policy, error) = (policy.as_str(), format!("{error:#}"));
                tracing::warn!(code = "settlement_uncertain", policy, error, more, "a settlement may not have arrived");
            });
        })?;
        Ok(vec![Applied { stamp: marked(applied.stamp, epoch), ..applied }])
    };
    follow(shared, shared.inner.adjust(counter, Change::Charge(units)), guards, done)
}

/// Settles what the inner store decided, by a receipt of it whose stamps have the epoch taken off.
///
/// Units that were taken before a reset of their key are not refunded.
pub(super) fn settle_there(shared: &Arc<SharedBalances>, receipt: Receipt, changes: &[Settlement]) -> Settling {
    let epochs: Vec<u64> = receipt.taken().iter().map(|taken| shared.epoch(&taken.counter)).collect();
    let mut epoch = epochs.iter();
    let receipt = receipt.each_taken(|taken| match unmarked(taken.stamp, *epoch.next().unwrap_or(&0)) {
        Some(stamp) => taken.stamp = stamp,
        None => taken.units = 0,
    });
    let charge = |settlement: &Settlement| match settlement.of(&receipt) {
        Some((taken, Change::Charge(units))) => Metered::begin(shared, &taken.counter, units),
        _ => None,
    };
    let metered: Vec<Metered> = changes.iter().filter_map(charge).collect();
    let settling = shared.inner.settle(receipt, changes);
    if metered.is_empty() && epochs.iter().all(|epoch| *epoch == 0) {
        return settling;
    }
    let epochs: Vec<u64> = changes.iter().map(|change| epochs.get(change.check).copied().unwrap_or(0)).collect();
    follow(shared, settling, metered, move |applied| {
        let each = applied?.into_iter().zip(epochs);
        Ok(each.map(|(applied, epoch)| Applied { stamp: marked(applied.stamp, epoch), ..applied }).collect())
    })
}

/// Changes a counter outside any decision, in the inner store; a charge lowers what may be admitted here at once.
pub(super) fn adjust(
    shared: &Arc<SharedBalances>,
    counter: &Counter,
    change: Change,
) -> Answer<Result<Applied, Error>> {
    if change == Change::Reset {
        return reset(shared, counter);
    }
    let metered = if let Change::Charge(units) = change { Metered::begin(shared, counter, units) } else { None };
    let answer = shared.inner.adjust(counter, change);
    if metered.is_none() { answer } else { follow(shared, answer, metered, |applied| applied) }
}

/// Resets a counter: from now on there is no debt for it, and nothing that was taken before is refunded. One that has
/// nothing but a debt was there, too.
fn reset(shared: &Arc<SharedBalances>, counter: &Counter) -> Answer<Result<Applied, Error>> {
    let resetting = Resetting::begin(shared, counter);
    let had_debt = u64::from(resetting.had_debt);
    let done = move |applied: Result<Applied, Error>| applied.map(|of| Applied { units: of.units.max(had_debt), ..of });
    follow(shared, shared.inner.adjust(counter, Change::Reset), resetting, done)
}

/// Waits for an answer in a task, so that a change is made whether or not its caller waits, and drops its `guards`
/// then.
///
/// `done` makes the caller's answer. Without a runtime the caller waits by itself; a runtime that ends before the
/// answer makes it an error.
fn follow<T: Send + 'static, U: Send + 'static>(
    shared: &SharedBalances,
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
    let Some(runtime) = shared.runtime() else { return Answer::pending(guarded) };
    let (sender, receiver) = oneshot::channel();
    runtime.spawn(async move {
        // Its caller may have stopped waiting.
        let _ = sender.send(guarded.await);
    });
    Answer::pending(async move { receiver.await.unwrap_or_else(|_| Err(stopped())) })
}

/// The error of a change whose task was dropped.
fn stopped() -> Error {
    Error::new(Kind::Store, "a change was stopped: its runtime has ended")
}
