//! The task that charges a key at each tick, and then looks at what remains.
//!
//! It begins when the key admits a unit and has no task, and ends at the first tick without a debt, under
//! the same lock: so a key with a debt always has a task, unless its runtime has ended. A task that is dropped with
//! its runtime clears the mark, and the next request that is admitted starts another one.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::balance::Balance;
use super::balances::Balances;
use super::charge::Charge;
use super::shared::SharedBalances;
use crate::store::{Ask, Check, Counter, Store};

/// The task of one key, before and while it runs.
pub(super) struct Ticking {
    /// Kept alive while there is a debt, so that dropping the store loses no debt.
    shared: Arc<SharedBalances>,
    /// The hash of the counter.
    hash: u64,
    /// The key's counter; its quota may have changed since.
    counter: Counter,
    /// Whether the key's mark was cleared already.
    ended: bool,
}

impl Ticking {
    pub(super) fn new(shared: Arc<SharedBalances>, hash: u64, counter: Counter) -> Self {
        Self { shared, hash, counter, ended: false }
    }

    /// Charges the debt at each tick until there is none, and looks after each charge that arrived.
    pub(super) async fn run(mut self) {
        let all = Arc::clone(&self.shared);
        loop {
            sleep(all.tick).await;
            let charge = {
                let mut balances = all.shards.lock(self.hash);
                let Some(balance) = balances.find(self.hash, &self.counter).filter(|balance| balance.has_debt()) else {
                    return self.end(&mut balances);
                };
                Charge::begin(&all, balance)
            };
            if let Some(charge) = charge
                && charge.send().await.is_ok()
            {
                look(&all, self.hash, &self.counter).await;
            }
        }
    }

    /// Ends under the lock under which there was no debt.
    fn end(&mut self, balances: &mut Balances) {
        self.ended = true;
        if let Some(balance) = balances.find(self.hash, &self.counter) {
            balance.ticks = false;
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        if !self.ended {
            let shared = Arc::clone(&self.shared);
            self.end(&mut shared.shards.lock(self.hash));
        }
    }
}

/// Updates the balance by a look, unless the inner store was called for the key meanwhile.
async fn look(shared: &SharedBalances, hash: u64, counter: &Counter) {
    let before_call = |balance: &mut Balance| (balance.turns, balance.counted(), balance.counter.clone());
    let before_call = shared.shards.lock(hash).find(hash, counter).map(before_call);
    // The key's own quota: it may have changed since its task began.
    let Some((turns, before, counter)) = before_call else { return };
    let (sent, look) = (Instant::now(), [Check::new(counter.clone(), 0)]);
    let Ok(decided) = shared.bounded(shared.inner.decide(&look, Ask::default())).await else { return };
    let _ = shared.inner_id.set(decided.receipt.store());
    let mut balances = shared.shards.lock(hash);
    let balance = balances.find(hash, &counter).filter(|balance| balance.is_as_before(turns));
    if let (Some(balance), Some(outcome)) = (balance, decided.decision.outcomes().first()) {
        balance.update(outcome, outcome.remaining(), shared.allowance, (sent, before));
    }
}
