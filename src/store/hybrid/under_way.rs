//! What is on its way to the inner store outside of a request, and is accounted for meanwhile.
//!
//! Two guards: a metered charge lowers what may be admitted until it has ended, and a reset keeps its key from
//! admitting anything. Each begins under the lock of its part and ends when it is dropped, whether or not a result
//! came. For a key without an entry, and without room for one, the part has a stray for so long.

use std::sync::Arc;

use tokio::time::Instant;

use super::balance::Balance;
use super::shared::SharedBalances;
use crate::store::Counter;

/// Units charged besides what a request took, until they have arrived.
pub(super) struct Metered {
    /// Where the key's balance is.
    shared: Arc<SharedBalances>,
    hash: u64,
    counter: Counter,
    /// How many units are charged.
    units: u64,
    /// Whether there was no room for an entry.
    is_stray: bool,
}

/// A reset on its way: nothing is admitted here meanwhile, as it would be unknown on which side of it.
pub(super) struct Resetting {
    shared: Arc<SharedBalances>,
    hash: u64,
    counter: Counter,
    /// Whether there was no room for an entry.
    is_stray: bool,
    /// Whether there was a debt.
    pub(super) had_debt: bool,
}

impl Metered {
    /// Lowers what is left by units that are charged now; `None` for queues and slots, of which nothing is
    /// admitted here.
    pub(super) fn begin(shared: &Arc<SharedBalances>, counter: &Counter, units: u64) -> Option<Self> {
        if counter.quota().facts().only_in_store() {
            return None;
        }
        let hash = shared.hash(counter);
        let mut balances = shared.shards.lock(hash);
        let balance = balances.make(hash, counter, Instant::now(), shared.fresh());
        let is_stray = balance.map(|balance| balance.begin_metered(units)).is_none();
        balances.strays += usize::from(is_stray);
        Some(Self { shared: Arc::clone(shared), hash, counter: counter.clone(), units, is_stray })
    }
}

impl Resetting {
    /// Forgets the debt of a counter, and what was taken.
    pub(super) fn begin(shared: &Arc<SharedBalances>, counter: &Counter) -> Self {
        let hash = shared.hash(counter);
        let mut balances = shared.shards.lock(hash);
        let is_stray = balances.make(hash, counter, Instant::now(), shared.fresh()).map(Balance::enter).is_none();
        balances.strays += usize::from(is_stray);
        let had_debt = balances.find(hash, counter).is_some_and(|balance| balance.has_debt());
        balances.forget(hash, counter);
        Self { shared: Arc::clone(shared), hash, counter: counter.clone(), is_stray, had_debt }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let mut balances = self.shared.shards.lock(self.hash);
        balances.strays -= usize::from(self.is_stray);
        match balances.find(self.hash, &self.counter) {
            // Results received meanwhile do not include it.
            Some(balance) if self.is_stray => balance.distrust(),
            Some(balance) => balance.end_metered(self.units),
            None => {}
        }
    }
}

impl Drop for Resetting {
    fn drop(&mut self) {
        let mut balances = self.shared.shards.lock(self.hash);
        balances.strays -= usize::from(self.is_stray);
        balances.forget(self.hash, &self.counter);
        match balances.find(self.hash, &self.counter) {
            Some(balance) if self.is_stray => balance.distrust(),
            Some(balance) => drop(balance.leave(0)),
            None => {}
        }
    }
}
