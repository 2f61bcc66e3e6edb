//! A hot key, and the leases that are held for it.
//!
//! Checks of the key come in, under the lock of its part; whether leases cover them, the outcome of one that
//! was spent, and how many units to lease next go out. Leases that are to be returned go out by the `backs` of the
//! caller, who returns them once the lock is released.
//!
//! Invariant: a key has at most [`MOST_LOTS`] lots and one lease call in flight, which is for no more than the
//! key's share of the limit less what is held.

use smallvec::SmallVec;

use super::lot::{Lot, lifetime, micros};
use super::rate::Rate;
use crate::core::decision::{Measures, Outcome};
use crate::store::map::Entry;
use crate::store::{Check, Counter, Taken};

/// A smaller lease is not worth its call.
pub(super) const LEAST: u64 = 4;

/// Leases kept at a time: spent ones are kept for refunds as long as they live.
const MOST_LOTS: usize = 4;

/// A key with many requests in this process, and its leases.
#[derive(Debug)]
pub(super) struct HotKey {
    /// The hash of policy and key.
    pub(super) hash: u64,
    /// The counter, with the quota of the last check.
    pub(super) counter: Counter,
    /// Its demand, in lifetimes of a lease.
    pub(super) rate: Rate,
    /// The leases, oldest first; spent ones stay for refunds.
    pub(super) lots: SmallVec<[Lot; 2]>,
    /// The number of the lease call in flight.
    pub(super) in_flight: Option<u64>,
    /// No lease is requested until then.
    pub(super) quiet_until: u64,
}

/// A lease to return, and the limit its bucket refilled by.
pub(super) type Back = (Lot, u64);

impl Entry for HotKey {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl HotKey {
    /// Returns the entry of a key that has just become hot, without leases.
    pub(super) fn new(hash: u64, counter: &Counter, now: u64) -> Self {
        let (rate, lots) = (Rate::hot(now), SmallVec::new());
        Self { hash, counter: counter.clone(), rate, lots, in_flight: None, quiet_until: 0 }
    }

    /// Returns whether this is the entry of a counter: policy, key, algorithm and window are the same.
    pub(super) fn is(&self, counter: &Counter) -> bool {
        self.counter.shares_state(counter)
    }

    /// Takes over the quota of a check, and gives up the lots that are over.
    ///
    /// A raised limit changes nothing else; a lowered limit or capacity gives up all lots and lets the key rest for
    /// one lifetime.
    ///
    /// `wall` reads the wall clock, if windows of the quota are aligned to it.
    pub(super) fn refresh(
        &mut self,
        counter: &Counter,
        now: u64,
        wall: impl FnOnce() -> Option<u64>,
        backs: &mut Vec<Back>,
    ) {
        let (known, quota) = (self.counter.quota(), counter.quota());
        if known != quota {
            if quota.limit() < known.limit() || quota.capacity() < known.capacity() {
                self.give_up(backs, |_| true);
                self.quiet_until = now + lifetime(quota);
            }
            self.counter = counter.clone();
        }
        if !self.lots.is_empty() {
            self.end_lots(now, wall(), backs);
        }
    }

    /// Gives up the lots that are over by either clock.
    pub(super) fn end_lots(&mut self, now: u64, wall: Option<u64>, backs: &mut Vec<Back>) {
        self.give_up(backs, |lot| lot.is_over(now) || wall.is_some_and(|wall| lot.is_over_by_wall(wall)));
    }

    /// Moves the lots for which `is_over` holds to `backs`.
    pub(super) fn give_up(&mut self, backs: &mut Vec<Back>, is_over: impl Fn(&Lot) -> bool) {
        let limit = self.counter.quota().limit();
        let mut place = 0;
        while place < self.lots.len() {
            if is_over(&self.lots[place]) {
                backs.push((self.lots.remove(place), limit));
            } else {
                place += 1;
            }
        }
    }

    /// Adds a lot that came; in place of a spent one, or else of the oldest, if there are too many.
    pub(super) fn add(&mut self, lot: Lot, backs: &mut Vec<Back>) {
        if self.lots.len() >= MOST_LOTS {
            let spent = self.lots.iter().position(|lot| lot.left == 0).unwrap_or(0);
            backs.push((self.lots.remove(spent), self.counter.quota().limit()));
        }
        self.lots.push(lot);
    }

    /// Returns whether one lot has units enough for a cost; units of two are not put together.
    pub(super) fn covers(&self, cost: u64, now: u64) -> bool {
        self.lots.iter().any(|lot| lot.covers(cost, now))
    }

    /// Spends units that are [covered](Self::covers); panics if they are not. The stamp of the receipt is the lot's, by
    /// which a refund finds it.
    ///
    /// What remains is what was left in the inner store at the last lease, and what is held here, up to the capacity.
    pub(super) fn spend(&mut self, check: &Check, now: u64) -> (Outcome, Taken) {
        let lot = self.lots.iter_mut().find(|lot| lot.covers(check.cost, now)).expect("it was covered");
        lot.left -= check.cost;
        let (stamp, quota) = (lot.stamp(), check.counter.quota());
        let last = self.lots.last().expect("there is one");
        let remaining = last.remaining.saturating_add(self.held(now)).min(quota.capacity());
        let reset = quota.tick().of(last.reset(now));
        let wait = if remaining == 0 { reset } else { 0 };
        let window = quota.tick().of(micros(last.window));
        let measures = Measures { fits: true, remaining, wait, reset, window, delay: 0 };
        let taken = Taken { counter: check.counter.clone(), units: check.cost, floor: 0, stamp };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// Returns the units that are leased, unspent and not over.
    pub(super) fn held(&self, now: u64) -> u64 {
        self.lots.iter().filter(|lot| !lot.is_over(now)).map(|lot| lot.left).sum()
    }

    /// How much to lease now, of at most `most` at a time; `None` for nothing.
    ///
    /// A lease is for two thirds of the units of demand in its lifetime, and the next one is requested
    /// when a quarter is left of it: so each is spent before it ends.
    #[inline]
    pub(super) fn wants(&self, cost: u64, most: u64, now: u64) -> Option<u64> {
        if self.in_flight.is_some() || now < self.quiet_until {
            return None;
        }
        let (life, held) = (lifetime(self.counter.quota()), self.held(now));
        let target = self.until_edge(self.rate.demand()?.saturating_mul(2) / 3, life, now);
        let ends_soon = self.lots.last().is_none_or(|lot| !lot.ends_at_edge() && lot.life(now) < life / 4);
        if held > target / 4 && held >= cost && !ends_soon {
            return None;
        }
        let units = target.min(most.saturating_sub(held));
        (units >= LEAST.max(cost.saturating_mul(2))).then_some(units)
    }

    /// `units`, or the part of them that the time left in the window is of a lease's life.
    ///
    /// Without a lot the end of the window is not known, and all units are returned.
    fn until_edge(&self, units: u64, life: u64, now: u64) -> u64 {
        let left = self.lots.last().map_or(life, |lot| lot.edge().saturating_sub(now)).min(life);
        let part = u128::from(units) * u128::from(left) / u128::from(life.max(1));
        u64::try_from(part).unwrap_or(units)
    }

    /// Returns whether nothing is known of it that a key new to this process would not do without: no lot, no call,
    /// and no request for two lifetimes.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let life = lifetime(self.counter.quota());
        self.lots.is_empty() && self.in_flight.is_none() && self.rate.idle(now) >= 2 * life
    }
}
