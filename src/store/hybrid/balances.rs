//! A bounded part of the keys.
//!
//! Hashes and counters come in, balances go out. Unlike a cache, the map must not lose an entry with a debt: so only
//! quiet balances are dropped to make room, and where there is none, the new key gets no entry and is decided by the
//! inner store. Such a request is a *stray*: while there is one, its part admits nothing, as its units would not be
//! known.

use std::time::Duration;

use tokio::time::Instant;

use super::balance::Balance;
use crate::store::Counter;
use crate::store::map::Table;

/// The balances of one part of the map; its lock is held as long as there is a reference to it.
#[derive(Debug)]
pub(super) struct Balances {
    /// Swept only when it is full.
    table: Table<Balance>,
    /// Requests the inner store is deciding whose keys found no room: none is admitted here
    /// meanwhile.
    pub(super) strays: usize,
    /// Where the count of resets begins for keys that have no entry: not before that of any entry dropped.
    epoch: u64,
}

impl Balances {
    /// Returns a part for up to `room` keys.
    pub(super) fn new(room: usize) -> Self {
        Self { table: Table::swept_when_full(room), strays: 0, epoch: 0 }
    }

    /// Returns the balance of a key, if there is one.
    pub(super) fn find(&mut self, hash: u64, counter: &Counter) -> Option<&mut Balance> {
        self.table.find_mut(hash, |balance| balance.counter.shares_state(counter))
    }

    /// Returns the balance of a key, made if there is room; `None` if all balances are in use.
    pub(super) fn make(&mut self, hash: u64, counter: &Counter, now: Instant, fresh: Duration) -> Option<&mut Balance> {
        if self.find(hash, counter).is_none() {
            if self.table.is_due() {
                self.make_room(now, fresh);
            }
            if self.table.is_full() {
                return None;
            }
            return Some(self.table.insert(Balance::new(hash, counter, self.epoch)));
        }
        self.find(hash, counter)
    }

    /// Drops quiet balances that are stale; if none is, some quiet one.
    ///
    /// The epochs of those dropped are kept as the least that a key without an entry has, so that a reset is not
    /// forgotten.
    fn make_room(&mut self, now: Instant, fresh: Duration) {
        let Self { table, epoch, .. } = self;
        let mut drops = |balance: &Balance| *epoch = balance.epoch.max(*epoch);
        table.sweep(|balance| {
            let stays = !balance.is_quiet() || balance.age(now) < fresh;
            if !stays {
                drops(balance);
            }
            stays
        });
        if table.is_full()
            && let Some(evicted) = table.evict_one(Balance::is_quiet)
        {
            drops(&evicted);
        }
    }

    /// Returns how often a key was reset; for one without an entry, at least that often.
    pub(super) fn epoch(&mut self, hash: u64, counter: &Counter) -> u64 {
        let none = self.epoch;
        self.find(hash, counter).map_or(none, |balance| balance.epoch)
    }

    /// Forgets the debt of a key that is reset, and begins its next epoch.
    pub(super) fn forget(&mut self, hash: u64, counter: &Counter) {
        match self.find(hash, counter) {
            Some(balance) => balance.forget(balance.epoch + 1),
            None => self.epoch += 1,
        }
    }

    /// Returns the counters with a debt.
    pub(super) fn debtors(&self) -> impl Iterator<Item = &Counter> {
        self.table.iter().filter(|balance| balance.has_debt()).map(|balance| &balance.counter)
    }
}
