//! A hot key, the leases that are held for it, its demand, by which they are sized, and its debt: units that were
//! admitted and that the inner store is not known to have charged.
//!
//! Checks of the key come in, under the lock of its part; whether leases cover them, the outcome of one that
//! was spent, and how many units to lease next go out. Leases that are to be returned go out by the `backs` of the
//! caller, who returns them once the lock is released.
//!
//! Two times end a [`Lot`]: its lifetime, counted from when it was *requested*, as the inner store may have charged it
//! then; and the edge of the window that its units were charged to, less a tick, as the store rounds its clock down.
//! Both err to the early side, so a unit is never spent in a later window than it was charged to, as long as both
//! processes' clocks run alike. In an aligned window the lot ends by the wall clock too, which may be set at any time.
//!
//! Overdrawn units carry the number of the lease call that was in flight. By it a refund finds them: they are owed
//! still, or were paid by a lot, of which the last [`MOST_PAYMENTS`] are kept, or by a charge, and are not refunded.
//!
//! Invariants: a key has at most [`MOST_LOTS`] lots and one lease call in flight, which is for no more than the
//! key's share of the limit less what is held. Units are paid in the order of their numbers, so all with a number up to
//! `paid` are paid, and of the others some may be.

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
    hash: u64,
    /// The counter, with the quota of the last check.
    counter: Counter,
    /// Its demand, in lifetimes of a lease.
    rate: Rate,
    /// The leases, oldest first; spent ones stay for refunds.
    lots: Vec<Lot>,
    /// What the inner store said with the last lease.
    seen: Seen,
    /// The number of the lease call in flight.
    in_flight: Option<u64>,
    /// No lease is requested until then.
    quiet_until: u64,
    /// Whether the last lease was over when it came: then only what is owed is worth a call.
    is_far: bool,
    /// Units admitted without a lease.
    debt: Debt,
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
    call: u64,
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
        self.give_up(backs, |lot| lot.has_ended(now, wall));
    }

    /// Moves the lots for which `is_over` holds to `backs`, and what is owed if no lease is requested that is to pay it.
    pub(super) fn give_up(&mut self, backs: &mut Vec<Back>, is_over: impl Fn(&Lot) -> bool) {
        let limit = self.counter.quota().limit();
        backs.extend(self.lots.extract_if(.., |lot| is_over(lot)).map(|lot| Back::Lot(lot, limit)));
        if self.debt.owed > 0 && self.in_flight.is_none() {
            backs.push(Back::Debt(self.counter.clone(), self.debt.charge()));
        }
    }

    /// Gives up the lots that are over, or all of a key that is idle. Returns `false` if the key may be forgotten.
    pub(super) fn sweep(&mut self, now: u64, all: bool, backs: &mut Vec<Back>) -> bool {
        let is_idle = all || self.rate.idle(now) >= lifetime(self.counter.quota()) / 2;
        self.give_up(backs, |lot| is_idle || lot.is_over(now));
        !self.is_idle(now)
    }

    /// Ends a lease call, if it is the one in flight.
    pub(super) fn ending(&mut self, want: &Want) -> Option<&mut Self> {
        self.in_flight.take_if(|call| *call == want.call)?;
        Some(self)
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

    /// Returns the units that are owed.
    pub(super) fn owed(&self) -> u64 {
        self.debt.owed
    }

    /// Owes nothing for a request that was not admitted.
    pub(super) fn owe_no_more(&mut self) {
        self.debt.sent = self.debt.sent.min(self.debt.owed);
    }

    /// Takes back units that carry this stamp. Returns how many were owed, how many were paid, the inner store's stamp of
    /// those, and whether they are back in their lot.
    pub(super) fn take_back(&mut self, stamp: u64, units: u64, now: u64) -> (u64, u64, u64, bool) {
        let (owed, paid, stamp) = if stamp < OVERDRAWN { (0, units, stamp) } else { self.debt.take_back(stamp, units) };
        let is_back = self.lots.iter_mut().filter(|lot| lot.stamp() == stamp).any(|lot| lot.put_back(paid, now));
        (owed, paid, stamp, is_back)
    }

    /// Returns the inner store's stamp of overdrawn units, once a lot has paid them.
    pub(super) fn stamp_of(&mut self, stamp: u64) -> Option<u64> {
        self.debt.payment(stamp & !OVERDRAWN).filter(|payment| payment.stamp > 0).map(|payment| payment.stamp)
    }

    /// Returns the units of all lots, and those that are owed.
    pub(super) fn into_units(self) -> (u64, u64) {
        (self.lots.iter().map(|lot| lot.left).sum(), self.debt.owed)
    }

    /// Counts a request, and requests the next lease.
    pub(super) fn note(&mut self, check: &Check, most: u64, now: u64) -> Option<Want> {
        self.rate.note(now, lifetime(check.counter.quota()), check.cost);
        self.request(check.cost, most, now)
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

/// The units of one lease. What is left of them when it is over is returned, which consumes the lot: its receipt can be
/// settled once only. Times are microseconds of this process's clock.
#[derive(Debug)]
pub(super) struct Lot {
    /// The inner store's, for exactly one check.
    receipt: Receipt,
    /// How many units were charged.
    granted: u64,
    /// How many of them are unspent; never more than `granted`.
    left: u64,
    /// When the lease was requested.
    sent: u64,
    /// When it came.
    received: u64,
    /// Nothing is spent from then on.
    ends: u64,
    /// The same life by the wall clock, for aligned windows.
    wall: Range<u64>,
    /// The end of the window the units were charged to.
    edge: u64,
}

/// What the inner store said of a counter when it granted a lease.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When the lease was requested.
    sent: u64,
    /// What remained.
    remaining: u64,
    /// Until its untouched state would admit a full limit.
    reset: u64,
    /// The length of the window the units were charged to.
    window: Duration,
}

/// Returns how long a lease of this quota lives, in microseconds: a tenth of the window, and at most a second.
fn lifetime(quota: &Quota) -> u64 {
    micros(quota.window() / 10).min(1_000_000)
}

/// Returns the period in which so many requests make a key hot: the lifetime of a lease; a second with an overdraft, as
/// that is of use to keys with less load too.
pub(super) fn period(quota: &Quota, overdraft: u64) -> u64 {
    if overdraft > 0 { 1_000_000 } else { lifetime(quota) }
}

impl Lot {
    /// What an allowed decision about one check leased, and what it says of the counter. It may have been made as soon as
    /// it was sent, so all times are counted from then; `wall` is the wall clock's time then, if windows are aligned.
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

    /// Returns whether nothing of it may be spent at `now`.
    fn is_over(&self, now: u64) -> bool {
        now >= self.ends
    }

    /// Returns whether nothing of it may be spent by either clock; the wall clock is read if windows are aligned to it.
    pub(super) fn has_ended(&self, now: u64, wall: Option<u64>) -> bool {
        self.is_over(now) || wall.is_some_and(|wall| !self.wall.contains(&wall))
    }

    /// Returns whether it has units enough for a cost, and is not over.
    fn covers(&self, cost: u64, now: u64) -> bool {
        self.left >= cost && !self.is_over(now)
    }

    /// Returns the counter that the units were charged to, with the quota of then.
    fn counter(&self) -> &Counter {
        &self.receipt.items()[0].counter
    }

    /// The mark the inner store gave these units.
    pub(super) fn stamp(&self) -> u64 {
        self.receipt.items()[0].stamp
    }

    /// How long it can still be spent.
    fn life(&self, now: u64) -> u64 {
        self.ends.saturating_sub(now)
    }

    /// Puts units back that were spent from here; `false` if that is too late.
    fn put_back(&mut self, units: u64, now: u64) -> bool {
        let fits = !self.is_over(now) && self.left + units <= self.granted;
        self.left += if fits { units } else { 0 };
        fits
    }

    /// Returns the receipt of the units, how many are left, and how many of these are to be refunded.
    pub(super) fn into_refund(self, limit: u64, now: u64) -> (Receipt, u64, u64) {
        let refund = self.refund(limit, now);
        (self.receipt, self.left, refund)
    }

    /// Returns how many of the units that are left are to be refunded to the inner store.
    ///
    /// Units of a window or a log are as if they had never been taken. A bucket may have been full
    /// except for them, and then has refilled their place in the meantime: refunding all of them
    /// would count that time twice, and many processes could hold a full bucket together with the
    /// units of each. So what is refilled in the lease's life is kept.
    fn refund(&self, limit: u64, now: u64) -> u64 {
        let facts = self.counter().quota().facts();
        let counts = facts.windows != 1 || now < self.edge;
        match facts.refund {
            Refund::Unrefilled => self.left.saturating_sub(self.refilled(limit, now)),
            Refund::Counted | Refund::LastInLine if counts => self.left,
            Refund::Counted | Refund::LastInLine => 0,
        }
    }

    /// Returns the units a bucket refills, rounded up, until the refund will have arrived: that takes as long again as
    /// the result took.
    ///
    /// `ceil(limit * age / window)`, with the larger of the limit of then and of now.
    fn refilled(&self, limit: u64, now: u64) -> u64 {
        let quota = self.counter().quota();
        let age = now.saturating_sub(self.sent) + self.received.saturating_sub(self.sent);
        let window = u128::from(micros(quota.window()));
        let refilled = (u128::from(limit.max(quota.limit())) * u128::from(age)).div_ceil(window);
        u64::try_from(refilled).unwrap_or(u64::MAX)
    }
}

impl Seen {
    /// Returns how long the inner store's counter takes from `now` to be as unused, in microseconds.
    fn reset(&self, now: u64) -> u64 {
        self.reset.saturating_sub(now.saturating_sub(self.sent))
    }
}

/// Set in the stamps of overdrawn units; the rest is the number of a lease call. Inner stores' stamps are below.
pub(super) const OVERDRAWN: u64 = 1 << 63;

/// Payments that are kept for refunds.
const MOST_PAYMENTS: usize = 16;

/// The debt of one key.
#[derive(Debug)]
struct Debt {
    /// Units that the inner store is not known to have charged.
    owed: u64,
    /// Those of them that were owed when the call in flight was sent.
    sent: u64,
    /// Whether the last lease call was granted: only then more may be owed.
    may_grow: bool,
    /// The first number of which payments are known.
    known: u64,
    /// The last number of units that were owed.
    last: u64,
    /// Units of calls up to this number are paid.
    paid: u64,
    /// Oldest first.
    payments: VecDeque<Payment>,
}

/// Units that were paid, and can be refunded in the inner store.
#[derive(Debug)]
struct Payment {
    /// It was for units of calls up to this number.
    paid: u64,
    /// The inner store's stamp.
    stamp: u64,
    /// Units that were not refunded yet; none, if a charge paid them, as its stamp is not known.
    units: u64,
}

impl Debt {
    /// Returns no debt, that may not grow.
    fn none() -> Self {
        Self { owed: 0, sent: 0, may_grow: false, known: u64::MAX, last: 0, paid: 0, payments: VecDeque::new() }
    }

    /// Returns whether payments are kept for refunds.
    fn is_remembered(&self) -> bool {
        !self.payments.is_empty()
    }

    /// Owes units that are admitted during a call; returns the stamp of their receipt.
    fn add(&mut self, units: u64, call: u64) -> u64 {
        (self.known, self.last) = (self.known.min(call), call);
        self.owed += units;
        OVERDRAWN | call
    }

    /// Pays from a lot that has come by a call; returns the units.
    ///
    /// A lot that is over pays only what was owed when it was requested: what was admitted since would have been
    /// charged too long before.
    fn pay(&mut self, lot: &mut Lot, call: u64, is_over: bool) -> u64 {
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

    /// Has the whole debt charged; returns the units.
    fn charge(&mut self) -> u64 {
        self.paid = self.last;
        self.note(0, 0);
        mem::take(&mut self.owed)
    }

    fn note(&mut self, stamp: u64, units: u64) {
        self.payments.push_back(Payment { paid: self.paid, stamp, units });
        if self.payments.len() > MOST_PAYMENTS {
            self.known = self.payments.pop_front().map_or(0, |payment| payment.paid + 1);
        }
    }

    /// Takes units back that carry this stamp. Returns how many were owed, how many were paid, and the stamp of those.
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

    /// Returns what paid units of this number; the last payment, if that may have been for others of it.
    fn payment(&mut self, call: u64) -> Option<&mut Payment> {
        if call > self.paid {
            return self.payments.back_mut().filter(|_| call >= self.known);
        }
        self.payments.iter_mut().find(|payment| payment.paid >= call).filter(|_| call >= self.known)
    }
}

/// Requests in one period from which on a key is hot: below, leasing would save no calls.
pub(super) const HOT: u64 = 8;

/// The demand of a key in this process, by periods as long as a lease lives. Times are microseconds.
#[derive(Debug)]
struct Rate {
    /// When the current period began.
    start: u64,
    /// The units of the current period.
    now: u64,
    /// The units of the period before.
    before: u64,
    /// The time of the last request.
    last: u64,
}

impl Rate {
    /// Returns the rate of a key that has just become hot: all requests but the one that is noted next.
    fn hot(now: u64) -> Self {
        Self { start: now, last: now, now: HOT - 1, before: 0 }
    }

    /// Counts a request of `units`; `period` is the lifetime of a lease.
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

    /// Returns the units of demand in a period.
    fn demand(&self) -> u64 {
        self.now.max(self.before)
    }

    /// Returns the time since the last request.
    fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }
}
