//! A bounded part of the keys.

use std::time::Duration;

use tokio::time::Instant;

use super::balance::Balance;
use crate::store::Counter;
use crate::store::map::Table;

#[derive(Debug)]
pub(super) struct Balances {
    table: Table<Balance>,
    /// Requests the inner store is deciding whose keys found no room: none is admitted here
    /// meanwhile.
    pub(super) strays: usize,
    /// Where the count of resets begins for keys that have no entry: not before that of any entry dropped.
    epoch: u64,
}

impl Balances {
    pub(super) fn new(room: usize) -> Self {
        Self { table: Table::swept_when_full(room), strays: 0, epoch: 0 }
    }

    pub(super) fn find(&mut self, hash: u64, counter: &Counter) -> Option<&mut Balance> {
        self.table.find_mut(hash, |balance| balance.counter.shares_state(counter))
    }

    /// The balance of a key, made if there is room.
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

    /// Drops what says nothing any more; else some key of which nothing is owed.
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

    /// How often a key was reset.
    pub(super) fn epoch(&mut self, hash: u64, counter: &Counter) -> u64 {
        let none = self.epoch;
        self.find(hash, counter).map_or(none, |balance| balance.epoch)
    }

    /// Nothing is owed for a key that is reset, and nothing goes back of what was taken before.
    pub(super) fn forget(&mut self, hash: u64, counter: &Counter) {
        match self.find(hash, counter) {
            Some(balance) => balance.forget(balance.epoch + 1),
            None => self.epoch += 1,
        }
    }

    /// The counters something is owed for.
    pub(super) fn debtors(&self) -> impl Iterator<Item = &Counter> {
        self.table.iter().filter(|balance| balance.owes()).map(|balance| &balance.counter)
    }
}
