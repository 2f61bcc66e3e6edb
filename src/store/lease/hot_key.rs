//! A hot key, and the leases that are held for it.
//!
//! Checks of the key come in, under the lock of its part; whether leases cover them, the outcome of one that
//! was spent, and how many units to lease next go out. Leases that are to be returned go out by the `backs` of the
//! caller, who returns them once the lock is released.
//!
//! Invariant: a key has at most [`MOST_LOTS`] lots and one lease call in flight, which is for no more than the
//! key's share of the limit less what is held.

use std::sync::atomic::{AtomicU64, Ordering};

use super::demand::{Debt, Rate};
use super::lot::{Lot, Seen, lifetime, period};
use crate::core::decision::{Measures, Outcome};
use crate::store::clock::micros;
use crate::store::map::MapEntry;
use crate::store::{Check, Counter, ReceiptItem};

/// The number of the next lease call of any store: a key that is forgotten must not know the calls it had before.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// A smaller lease is not worth its call.
const LEAST: u64 = 4;

/// How long payments of a key without requests are kept for refunds, in microseconds.
const REMEMBERED: u64 = 60_000_000;

/// Leases kept at a time: spent ones are kept for refunds as long as they live.
const MOST_LOTS: usize = 4;

/// A key with many requests in this process, its leases, and what it owes.
#[derive(Debug)]
pub(super) struct HotKey {
    /// The hash of policy and key.
    pub(super) hash: u64,
    /// The counter, with the quota of the last check.
    pub(super) counter: Counter,
    /// Its demand, in lifetimes of a lease.
    pub(super) rate: Rate,
    /// The leases, oldest first; spent ones stay for refunds.
    pub(super) lots: Vec<Lot>,
    /// What the inner store said with the last lease.
    pub(super) seen: Seen,
    /// The number of the lease call in flight.
    pub(super) in_flight: Option<u64>,
    /// No lease is requested until then.
    quiet_until: u64,
    /// Whether the last lease was over when it came: then only what is owed is worth a call.
    is_far: bool,
    /// Units admitted without a lease.
    pub(super) debt: Debt,
    /// The most that may be owed.
    overdraft: u64,
}

/// A lease to request.
#[derive(Clone, Debug)]
pub(super) struct Want {
    /// The hash of the counter.
    pub(super) hash: u64,
    /// With the quota the key was last checked with.
    pub(super) counter: Counter,
    /// How many units to lease, those owed included.
    pub(super) units: u64,
    /// The number of the call, which its result has to match.
    pub(super) call: u64,
}

/// What goes to the inner store once no lock is held.
pub(super) enum Back {
    /// A lease to return, and the limit its bucket refilled by.
    Lot(Lot, u64),
    /// Units to charge that no lease is going to pay.
    Debt(Counter, u64),
}

impl Back {
    /// Returns the counter of which units are returned or charged.
    pub(super) fn counter(&self) -> &Counter {
        match self {
            Self::Lot(lot, _) => lot.counter(),
            Self::Debt(counter, _) => counter,
        }
    }
}

impl MapEntry for HotKey {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl HotKey {
    /// Returns the entry of a key that has just become hot, without leases.
    pub(super) fn new(hash: u64, counter: &Counter, now: u64, overdraft: u64) -> Self {
        Self {
            hash,
            counter: counter.clone(),
            rate: Rate::hot(now),
            lots: Vec::new(),
            seen: Seen::default(),
            in_flight: None,
            quiet_until: 0,
            is_far: false,
            debt: Debt::none(),
            overdraft,
        }
    }

    /// Returns whether this is the entry of a counter: policy, key, algorithm and window are the same.
    pub(super) fn is(&self, counter: &Counter) -> bool {
        self.counter.shares_state(counter)
    }

    /// Takes over the quota of a check, and gives up what is over.
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
                self.rest(now);
            }
            self.counter = counter.clone();
        }
        if !self.lots.is_empty() || self.debt.owed > 0 {
            self.end_lots(now, wall(), backs);
        }
    }

    /// Gives up the lots that are over by either clock.
    pub(super) fn end_lots(&mut self, now: u64, wall: Option<u64>, backs: &mut Vec<Back>) {
        self.give_up(backs, |lot| lot.is_over(now) || lot.is_over_by_wall(wall));
    }

    /// Moves the lots for which `is_over` holds to `backs`, and what is owed if no lease is requested that is to pay it.
    pub(super) fn give_up(&mut self, backs: &mut Vec<Back>, is_over: impl Fn(&Lot) -> bool) {
        let limit = self.counter.quota().limit();
        backs.extend(self.lots.extract_if(.., |lot| is_over(lot)).map(|lot| Back::Lot(lot, limit)));
        if self.debt.owed > 0 && self.in_flight.is_none() {
            backs.push(Back::Debt(self.counter.clone(), self.debt.charge()));
        }
    }

    /// Requests no lease, and owes no more, for a lifetime at least.
    pub(super) fn rest(&mut self, now: u64) {
        (self.quiet_until, self.debt.may_grow) = (now + lifetime(self.counter.quota()), false);
    }

    /// Takes over what a lease call was granted.
    ///
    /// The lot pays what is owed first; one that is over is given up then. If there are too many, it takes the place of
    /// a spent one, or else of the oldest. Returns the units paid.
    pub(super) fn grant(
        &mut self,
        (mut lot, seen): (Lot, Seen),
        want: &Want,
        is_over: bool,
        backs: &mut Vec<Back>,
    ) -> u64 {
        let paid = self.debt.pay(&mut lot, want.call, is_over);
        (self.seen, self.is_far, self.debt.may_grow) = (seen, is_over, self.overdraft > 0);
        let limit = self.counter.quota().limit();
        if is_over {
            backs.push(Back::Lot(lot, limit));
            return paid;
        }
        if self.lots.len() >= MOST_LOTS {
            let spent = self.lots.iter().position(|lot| lot.left == 0).unwrap_or(0);
            backs.push(Back::Lot(self.lots.remove(spent), limit));
        }
        self.lots.push(lot);
        paid
    }

    /// Returns whether one lot has units enough for a cost; units of two are not put together.
    fn covers(&self, cost: u64, now: u64) -> bool {
        self.lots.iter().any(|lot| lot.covers(cost, now))
    }

    /// Returns whether a cost may be owed while the next lease is on its way.
    ///
    /// Nothing is owed that did not remain when the last lease was granted.
    fn may_owe(&self, cost: u64) -> bool {
        let most = self.overdraft.min(self.seen.remaining);
        self.debt.may_grow && self.debt.owed.saturating_add(cost) <= most
    }

    /// Returns whether a check is admitted here: by one lot, or by the overdraft.
    pub(super) fn admits(&self, cost: u64, now: u64) -> bool {
        self.covers(cost, now) || self.in_flight.is_some() && self.may_owe(cost)
    }

    /// Spends units of the first lot that has enough, else of the overdraft. The stamp of the receipt is the lot's, or
    /// the number of the call, by which a refund finds them. Panics unless the cost is [admitted](Self::admits).
    ///
    /// What remains is what was left in the inner store at the last lease, and what is held here, up to the capacity,
    /// less what is owed.
    pub(super) fn spend(&mut self, check: &Check, now: u64) -> (Outcome, ReceiptItem) {
        let stamp = if let Some(lot) = self.lots.iter_mut().find(|lot| lot.covers(check.cost, now)) {
            lot.left -= check.cost;
            lot.stamp()
        } else {
            self.debt.add(check.cost, self.in_flight.expect("it was admitted"))
        };
        let quota = check.counter.quota();
        let remaining = self.seen.remaining.saturating_add(self.held(now)).min(quota.capacity());
        let remaining = remaining.saturating_sub(self.debt.owed);
        let reset = quota.tick().of(self.seen.reset(now));
        let wait = if remaining == 0 { reset } else { 0 };
        let window = quota.tick().of(micros(self.seen.window));
        let measures = Measures { fits: true, remaining, wait, reset, window, delay: 0 };
        let taken = ReceiptItem { counter: check.counter.clone(), units: check.cost, floor: 0, stamp };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// Returns the units that are leased, unspent and not over.
    pub(super) fn held(&self, now: u64) -> u64 {
        self.lots.iter().filter(|lot| !lot.is_over(now)).map(|lot| lot.left).sum()
    }

    /// Requests the next lease if it is worth a call, of at most `most` units and what is owed.
    ///
    /// `cost` is what is spent next, or owed, if no lot covers it.
    #[inline]
    pub(super) fn request(&mut self, cost: u64, most: u64, now: u64) -> Option<Want> {
        if self.in_flight.is_some() || now < self.quiet_until || self.debt.owed > 0 && !self.debt.may_grow {
            return None;
        }
        let is_owed = !self.covers(cost, now) && self.may_owe(cost);
        let owed = self.debt.owed + if is_owed { cost } else { 0 };
        let units = owed + self.wants(cost, most, now);
        if units == 0 {
            return None;
        }
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        (self.in_flight, self.debt.sent) = (Some(call), owed);
        Some(Want { hash: self.hash, counter: self.counter.clone(), units, call })
    }

    /// How much to lease besides what is owed, of at most `most` at a time.
    ///
    /// A lease is for two thirds of the units of demand in its lifetime, and the next one is requested
    /// when a quarter is left of it: so each is spent before it ends.
    fn wants(&self, cost: u64, most: u64, now: u64) -> u64 {
        if self.is_far && self.debt.may_grow {
            return 0;
        }
        let (target, held) = (self.rate.demand().saturating_mul(2) / 3, self.held(now).saturating_sub(cost));
        let life = lifetime(self.counter.quota()) / 4;
        let ends_soon = self.lots.last().is_none_or(|lot| lot.life(now) < life);
        if held > target / 4 && held >= cost && !ends_soon {
            return 0;
        }
        let units = target.min(most.saturating_sub(held));
        if units >= LEAST.max(cost.saturating_mul(2)) { units } else { 0 }
    }

    /// Returns whether it may be forgotten: it has no lot, no call and no debt, and had no request for two periods, or
    /// for as long as what it paid is kept for refunds.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let period = period(self.counter.quota(), self.overdraft);
        let kept = if self.debt.is_remembered() { REMEMBERED } else { 2 * period };
        self.lots.is_empty() && self.in_flight.is_none() && self.debt.owed == 0 && self.rate.idle(now) >= kept
    }
}
