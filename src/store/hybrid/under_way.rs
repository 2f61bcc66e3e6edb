//! What is on its way to the inner store outside of the way of a request, and is known of meanwhile.

use std::sync::Arc;

use tokio::time::Instant;

use super::balance::Balance;
use super::shared::SharedBalances;
use crate::store::Counter;

/// Units charged besides what a request took, until they have arrived.
pub(super) struct Metered {
    shared: Arc<SharedBalances>,
    hash: u64,
    counter: Counter,
    units: u64,
    is_stray: bool,
}

/// A reset on its way: nothing is admitted here meanwhile, for it would not be known on which side of it.
pub(super) struct Resetting {
    shared: Arc<SharedBalances>,
    hash: u64,
    counter: Counter,
    is_stray: bool,
}

impl Metered {
    /// Lowers what is left by units that are charged now.
    pub(super) fn begin(shared: &Arc<SharedBalances>, counter: &Counter, units: u64) -> Option<Self> {
        if counter.quota.facts().stands_in_line {
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
    /// Forgets what is owed for a counter, and what was taken.
    pub(super) fn begin(shared: &Arc<SharedBalances>, counter: &Counter) -> Self {
        let hash = shared.hash(counter);
        let mut balances = shared.shards.lock(hash);
        let is_stray = balances.make(hash, counter, Instant::now(), shared.fresh()).map(Balance::enter).is_none();
        balances.strays += usize::from(is_stray);
        balances.forget(hash, counter);
        Self { shared: Arc::clone(shared), hash, counter: counter.clone(), is_stray }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        let mut balances = self.shared.shards.lock(self.hash);
        balances.strays -= usize::from(self.is_stray);
        match balances.find(self.hash, &self.counter) {
            // What was learnt meanwhile does not know of it.
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
