//! A hot key has leases, a demand, which determines the size of the leases, and a debt. The debt is the units that were
//! allowed and that the inner store is not known to have charged.
//!
//! Leases to return are collected in `backs`. The caller returns them after releasing the lock.
//!
//! A [`Lease`] ends at the earlier of two times. One is its lifetime, counted from the *request*, because the inner store
//! may have charged it then. The other is the end of the window of its units, less a tick, because the store rounds its
//! clock down. Both are on the early side, so that a unit is never spent in a later window than its charge, as long as
//! the clocks of both processes run at equal speed. In an aligned window the lot also ends by the wall clock, which may
//! be set at any time.
//!
//! The stamp of overdrawn units is the number of the lease call in flight. By the stamp, a refund finds out if the
//! units are still owed, or were paid by a lot or a charge. The last [`MAX_PAYMENTS`] payments are kept. Units that a
//! charge paid are not refunded.
//!
//! Invariants: a key has at most [`MAX_LOTS`] lots, and one lease call in flight, for no more than the key's share of
//! the limit less the units held. Units are paid in the order of their numbers: all with a number up to `paid` are
//! paid, and some of the others may be.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::Quota;
use crate::core::algorithm::Refund;
use crate::core::decision::{Measures, Outcome};
use crate::store::clock::micros;
use crate::store::map::MapEntry;
use crate::store::{Check, Counter, Receipt, ReceiptItem, StoreDecision};

/// The number of the next lease call. Shared by all stores and keys, so that a new entry cannot match an old call.
static CALLS: AtomicU64 = AtomicU64::new(1);

/// A smaller lease is not worth its call.
const MIN_LEASE: u64 = 4;

/// Microseconds for which payments of an idle key are kept for refunds.
const REMEMBERED: u64 = 60_000_000;

/// Spent leases are kept, for refunds, until they end.
const MAX_LOTS: usize = 4;

#[derive(Debug)]
pub(super) struct HotKey {
    hash: u64,
    counter: Counter,
    /// In periods of a lease's lifetime.
    rate: Rate,
    lots: Vec<Lease>,
    seen: Seen,
    in_flight: Option<u64>,
    /// No lease is requested until then.
    quiet_until: u64,
    /// `true` if the last lease had ended on arrival. Then only a debt is worth a call.
    is_far: bool,
    /// Units allowed without a lease.
    debt: OwedUnits,
    overdraft: u64,
}

#[derive(Clone, Debug)]
pub(super) struct LeaseRequest {
    pub(super) hash: u64,
    pub(super) counter: Counter,
    /// Includes the units owed.
    pub(super) units: u64,
    /// Must match the key's `in_flight` when the call ends.
    call: u64,
}

pub(super) enum Back {
    Lease(Lease, u64),
    OwedUnits(Counter, u64),
}

impl Back {
    pub(super) fn counter(&self) -> &Counter {
        match self {
            Self::Lease(lot, _) => lot.counter(),
            Self::OwedUnits(counter, _) => counter,
        }
    }
}

impl MapEntry for HotKey {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl HotKey {
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
            debt: OwedUnits::none(),
            overdraft,
        }
    }

    pub(super) fn is(&self, counter: &Counter) -> bool {
        self.counter.shares_state(counter)
    }

    /// A lower limit or capacity gives up all lots, and the key rests. `wall` is read if windows are aligned to it.
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

    pub(super) fn end_lots(&mut self, now: u64, wall: Option<u64>, backs: &mut Vec<Back>) {
        self.give_up(backs, |lot| lot.has_ended(now, wall));
    }

    /// Moves lots to `backs`, and the debt if no lease call is in flight to pay it.
    pub(super) fn give_up(&mut self, backs: &mut Vec<Back>, is_over: impl Fn(&Lease) -> bool) {
        let limit = self.counter.quota().limit();
        backs.extend(self.lots.extract_if(.., |lot| is_over(lot)).map(|lot| Back::Lease(lot, limit)));
        if self.debt.owed > 0 && self.in_flight.is_none() {
            backs.push(Back::OwedUnits(self.counter.clone(), self.debt.charge()));
        }
    }

    pub(super) fn sweep(&mut self, now: u64, all: bool, backs: &mut Vec<Back>) -> bool {
        let is_idle = all || self.rate.idle(now) >= lifetime(self.counter.quota()) / 2;
        self.give_up(backs, |lot| is_idle || lot.is_over(now));
        !self.is_idle(now)
    }

    pub(super) fn ending(&mut self, want: &LeaseRequest) -> Option<&mut Self> {
        self.in_flight.take_if(|call| *call == want.call)?;
        Some(self)
    }

    /// Requests no lease, and owes no more, for at least a lifetime.
    pub(super) fn rest(&mut self, now: u64) {
        (self.quiet_until, self.debt.may_grow) = (now + lifetime(self.counter.quota()), false);
    }

    /// Pays the debt from the lot, then keeps it unless it has ended. Returns the units paid.
    pub(super) fn grant(
        &mut self,
        (mut lot, seen): (Lease, Seen),
        want: &LeaseRequest,
        is_over: bool,
        now: u64,
        backs: &mut Vec<Back>,
    ) -> u64 {
        let paid = self.debt.pay(&mut lot, want.call, is_over);
        (self.seen, self.is_far, self.debt.may_grow) = (seen, is_over, self.overdraft > 0);
        let limit = self.counter.quota().limit();
        if is_over {
            if !self.debt.may_grow {
                self.rest(now);
            }
            backs.push(Back::Lease(lot, limit));
            return paid;
        }
        // Replaces a spent lot, else the oldest.
        if self.lots.len() >= MAX_LOTS {
            let spent = self.lots.iter().position(|lot| lot.left == 0).unwrap_or(0);
            backs.push(Back::Lease(self.lots.remove(spent), limit));
        }
        self.lots.push(lot);
        paid
    }

    fn covers(&self, cost: u64, now: u64) -> bool {
        // Units of two lots are not combined.
        self.lots.iter().any(|lot| lot.covers(cost, now))
    }

    fn may_owe(&self, cost: u64) -> bool {
        let most = self.overdraft.min(self.seen.remaining);
        self.debt.may_grow && self.debt.owed.saturating_add(cost) <= most
    }

    pub(super) fn admits(&self, cost: u64, now: u64) -> bool {
        self.covers(cost, now) || self.in_flight.is_some() && self.may_owe(cost)
    }

    /// From a lot that covers the cost, else the overdraft. Panics unless [`admits`](Self::admits) is true.
    pub(super) fn spend(&mut self, check: &Check, now: u64) -> (Outcome, ReceiptItem) {
        let stamp = if let Some(lot) = self.lots.iter_mut().find(|lot| lot.covers(check.cost, now)) {
            lot.left -= check.cost;
            lot.stamp()
        } else {
            self.debt.add(check.cost, self.in_flight.expect("it was admitted"))
        };
        // The units that the inner store had at the last lease, plus the units held here, less the units owed.
        let quota = check.counter.quota();
        let remaining = self.seen.remaining.saturating_add(self.held(now)).min(quota.capacity());
        let remaining = remaining.saturating_sub(self.debt.owed);
        let reset = quota.tick().ticks_in(self.seen.reset(now));
        let wait = if remaining == 0 { reset } else { 0 };
        let window = quota.tick().ticks_in(micros(self.seen.window));
        let measures = Measures { fits: true, remaining, wait, reset, window, delay: 0 };
        let taken = ReceiptItem { counter: check.counter.clone(), units: check.cost, floor: 0, stamp };
        (Outcome::from_measures(check, &measures), taken)
    }

    pub(super) fn held(&self, now: u64) -> u64 {
        self.lots.iter().filter(|lot| !lot.is_over(now)).map(|lot| lot.left).sum()
    }

    pub(super) fn owed(&self) -> u64 {
        self.debt.owed
    }

    /// Undoes the debt of a request that was not allowed.
    pub(super) fn owe_no_more(&mut self) {
        self.debt.sent = self.debt.sent.min(self.debt.owed);
    }

    /// Returns the units owed, the units paid, the inner store's stamp of these, and `true` if they are back in a lot.
    pub(super) fn take_back(&mut self, stamp: u64, units: u64, now: u64) -> (u64, u64, u64, bool) {
        let (owed, paid, stamp) = if stamp < OVERDRAWN { (0, units, stamp) } else { self.debt.take_back(stamp, units) };
        let is_back = self.lots.iter_mut().filter(|lot| lot.stamp() == stamp).any(|lot| lot.put_back(paid, now));
        (owed, paid, stamp, is_back)
    }

    pub(super) fn stamp_of(&mut self, stamp: u64) -> Option<u64> {
        self.debt.payment(stamp & !OVERDRAWN).filter(|payment| payment.stamp > 0).map(|payment| payment.stamp)
    }

    pub(super) fn into_units(self) -> (u64, u64) {
        (self.lots.iter().map(|lot| lot.left).sum(), self.debt.owed)
    }

    pub(super) fn note(&mut self, check: &Check, most: u64, now: u64) -> Option<LeaseRequest> {
        self.rate.note(now, lifetime(check.counter.quota()), check.cost);
        self.request(check.cost, most, now)
    }

    /// `cost` is spent next, or owed if no lot covers it. The lease is for at most `most` units and the debt.
    #[inline]
    pub(super) fn request(&mut self, cost: u64, most: u64, now: u64) -> Option<LeaseRequest> {
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
        Some(LeaseRequest { hash: self.hash, counter: self.counter.clone(), units, call })
    }

    /// A lease is two thirds of the demand in its lifetime, requested when a quarter of the last is left, so that each
    /// is spent in time.
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
        if units >= MIN_LEASE.max(cost.saturating_mul(2)) { units } else { 0 }
    }

    /// Returns `true` if the entry may be removed: idle for two periods, or as long as payments are kept for refunds.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let period = period(self.counter.quota(), self.overdraft);
        let kept = if self.debt.is_remembered() { REMEMBERED } else { 2 * period };
        self.lots.is_empty() && self.in_flight.is_none() && self.debt.owed == 0 && self.rate.idle(now) >= kept
    }
}

/// Times in microseconds. Returning the rest consumes the lot, because its receipt can be settled once.
#[derive(Debug)]
pub(super) struct Lease {
    /// The inner store's receipt, of one check.
    receipt: Receipt,
    granted: u64,
    left: u64,
    sent: u64,
    received: u64,
    ends: u64,
    /// The lifetime by the wall clock, for aligned windows.
    wall: Range<u64>,
    /// End of the window that the units were charged to.
    edge: u64,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    sent: u64,
    remaining: u64,
    /// Time until the untouched counter would allow a full limit.
    reset: u64,
    /// Length of the window that the units were charged to.
    window: Duration,
}

/// A tenth of the window, at most a second, in microseconds.
fn lifetime(quota: &Quota) -> u64 {
    micros(quota.window() / 10).min(1_000_000)
}

/// In microseconds. A second with an overdraft, because an overdraft helps keys with less load, too.
pub(super) fn period(quota: &Quota, overdraft: u64) -> u64 {
    if overdraft > 0 { 1_000_000 } else { lifetime(quota) }
}

impl Lease {
    pub(super) fn new(decided: StoreDecision, sent: u64, wall: Option<u64>, received: u64) -> (Self, Seen) {
        let StoreDecision { decision, receipt } = decided;
        let (outcome, taken) = (&decision.outcomes()[0], &receipt.items()[0]);
        let (quota, granted) = (outcome.quota(), taken.units);
        let window = quota.window_end(outcome.reset_after()).map_or(u64::MAX / 4, micros);
        // The store rounds its clock down to a tick, so the window may end a tick earlier.
        let edge = (sent + window).saturating_sub(quota.tick().micros());
        let ends = edge.min(sent + lifetime(quota));
        let wall = wall.map_or(0..0, |wall| wall..wall + ends.saturating_sub(sent));
        let (remaining, reset, window) = (outcome.remaining(), micros(outcome.reset_after()), outcome.window());
        let seen = Seen { sent, remaining, reset, window };
        (Self { granted, left: granted, sent, received, ends, wall, edge, receipt }, seen)
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.ends
    }

    pub(super) fn has_ended(&self, now: u64, wall: Option<u64>) -> bool {
        self.is_over(now) || wall.is_some_and(|wall| !self.wall.contains(&wall))
    }

    fn covers(&self, cost: u64, now: u64) -> bool {
        self.left >= cost && !self.is_over(now)
    }

    fn counter(&self) -> &Counter {
        &self.receipt.items()[0].counter
    }

    pub(super) fn stamp(&self) -> u64 {
        self.receipt.items()[0].stamp
    }

    fn life(&self, now: u64) -> u64 {
        self.ends.saturating_sub(now)
    }

    fn put_back(&mut self, units: u64, now: u64) -> bool {
        let fits = !self.is_over(now) && self.left + units <= self.granted;
        self.left += if fits { units } else { 0 };
        fits
    }

    pub(super) fn into_refund(self, limit: u64, now: u64) -> (Receipt, u64, u64) {
        let refund = self.refund(limit, now);
        (self.receipt, self.left, refund)
    }

    /// A bucket may have been replenished while the units were held. Refunding all would count that time twice, so the
    /// replenished units are not refunded.
    fn refund(&self, limit: u64, now: u64) -> u64 {
        let facts = self.counter().quota().facts();
        let counts = facts.windows != 1 || now < self.edge;
        match facts.refund {
            Refund::Unrefilled => self.left.saturating_sub(self.refilled(limit, now)),
            Refund::Counted | Refund::LastInLine if counts => self.left,
            Refund::Counted | Refund::LastInLine => 0,
        }
    }

    /// `ceil(limit * age / window)`, with the larger limit. Assumes that the refund takes as long as the lease call.
    fn refilled(&self, limit: u64, now: u64) -> u64 {
        let quota = self.counter().quota();
        let age = now.saturating_sub(self.sent) + self.received.saturating_sub(self.sent);
        let window = u128::from(micros(quota.window()));
        let refilled = (u128::from(limit.max(quota.limit())) * u128::from(age)).div_ceil(window);
        u64::try_from(refilled).unwrap_or(u64::MAX)
    }
}

impl Seen {
    fn reset(&self, now: u64) -> u64 {
        self.reset.saturating_sub(now.saturating_sub(self.sent))
    }
}

/// Marks stamps of overdrawn units. The other bits are the number of a lease call. Stamps of inner stores are lower.
pub(super) const OVERDRAWN: u64 = 1 << 63;

const MAX_PAYMENTS: usize = 16;

#[derive(Debug)]
struct OwedUnits {
    owed: u64,
    /// The part of the owed units that was owed when the call in flight was sent.
    sent: u64,
    /// Whether the last lease call was granted.
    may_grow: bool,
    /// First number whose payments are known.
    known: u64,
    /// Last number of owed units.
    last: u64,
    /// All units up to this number are paid.
    paid: u64,
    payments: VecDeque<Payment>,
}

#[derive(Debug)]
struct Payment {
    paid: u64,
    stamp: u64,
    /// Units not refunded yet. 0 after a charge, whose stamp is unknown.
    units: u64,
}

impl OwedUnits {
    fn none() -> Self {
        Self { owed: 0, sent: 0, may_grow: false, known: u64::MAX, last: 0, paid: 0, payments: VecDeque::new() }
    }

    fn is_remembered(&self) -> bool {
        !self.payments.is_empty()
    }

    fn add(&mut self, units: u64, call: u64) -> u64 {
        (self.known, self.last) = (self.known.min(call), call);
        self.owed += units;
        OVERDRAWN | call
    }

    /// A lot that has ended pays only what was owed when it was requested: the charge of later units would be too old.
    fn pay(&mut self, lot: &mut Lease, call: u64, is_over: bool) -> u64 {
        let pays_all = !is_over && self.owed <= lot.left;
        let units = if pays_all { self.owed } else { self.owed.min(self.sent).min(lot.left) };
        lot.left -= units;
        self.owed -= units;
        self.paid = if pays_all { call } else { call - 1 };
        if units > 0 {
            self.note(lot.stamp(), units);
        }
        units
    }

    fn charge(&mut self) -> u64 {
        self.paid = self.last;
        self.note(0, 0);
        mem::take(&mut self.owed)
    }

    fn note(&mut self, stamp: u64, units: u64) {
        self.payments.push_back(Payment { paid: self.paid, stamp, units });
        if self.payments.len() > MAX_PAYMENTS {
            self.known = self.payments.pop_front().map_or(0, |payment| payment.paid + 1);
        }
    }

    /// Returns the units owed, the units paid, and the inner store's stamp of these.
    fn take_back(&mut self, stamp: u64, units: u64) -> (u64, u64, u64) {
        let call = stamp & !OVERDRAWN;
        let owed = if call > self.paid && call >= self.known { units.min(self.owed) } else { 0 };
        self.owed -= owed;
        self.sent = self.sent.saturating_sub(owed);
        let Some(payment) = self.payment(call) else { return (owed, 0, 0) };
        let paid = (units - owed).min(payment.units);
        payment.units -= paid;
        (owed, paid, payment.stamp)
    }

    /// Returns the payment of a call's units: the last one, if it may have paid other units of the call.
    fn payment(&mut self, call: u64) -> Option<&mut Payment> {
        if call > self.paid {
            return self.payments.back_mut().filter(|_| call >= self.known);
        }
        self.payments.iter_mut().find(|payment| payment.paid >= call).filter(|_| call >= self.known)
    }
}

/// Requests in a period that make a key hot. With fewer, leases would save no calls.
pub(super) const HOT: u64 = 8;

/// Demand of a key in this process, in periods of a lease's lifetime. Times in microseconds.
#[derive(Debug)]
struct Rate {
    start: u64,
    now: u64,
    before: u64,
    last: u64,
}

impl Rate {
    fn hot(now: u64) -> Self {
        Self { start: now, last: now, now: HOT - 1, before: 0 }
    }

    fn note(&mut self, now: u64, period: u64, units: u64) {
        let elapsed = now.saturating_sub(self.start);
        if elapsed >= 2 * period {
            (self.start, self.before, self.now) = (now, 0, 0);
        } else if elapsed >= period {
            (self.start, self.before, self.now) = (self.start + period, self.now, 0);
        }
        self.now = self.now.saturating_add(units);
        self.last = now;
    }

    fn demand(&self) -> u64 {
        self.now.max(self.before)
    }

    fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }
}
