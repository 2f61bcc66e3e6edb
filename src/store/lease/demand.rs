//! The demand of a hot key, by which its leases are sized, and its debt: units that were admitted and that the inner
//! store is not known to have charged.
//!
//! Overdrawn units carry the number of the lease call that was in flight. By it a refund finds them: they are owed
//! still, or were paid by a lot, of which the last [`MOST_PAYMENTS`] are kept, or by a charge, and are not refunded.
//!
//! Invariant: units are paid in the order of their numbers, so all with a number up to `paid` are paid, and of the
//! others some may be.

use std::collections::VecDeque;
use std::mem;

use super::lot::Lot;

/// Set in the stamps of overdrawn units; the rest is the number of a lease call. Inner stores' stamps are below.
pub(super) const OVERDRAWN: u64 = 1 << 63;

/// Payments that are kept for refunds.
const MOST_PAYMENTS: usize = 16;

/// The debt of one key.
#[derive(Debug)]
pub(super) struct Debt {
    /// Units that the inner store is not known to have charged.
    pub(super) owed: u64,
    /// Those of them that were owed when the call in flight was sent.
    pub(super) sent: u64,
    /// Whether the last lease call was granted: only then more may be owed.
    pub(super) may_grow: bool,
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
    pub(super) fn none() -> Self {
        Self { owed: 0, sent: 0, may_grow: false, known: u64::MAX, last: 0, paid: 0, payments: VecDeque::new() }
    }

    /// Returns whether payments are kept for refunds.
    pub(super) fn is_remembered(&self) -> bool {
        !self.payments.is_empty()
    }

    /// Owes units that are admitted during a call; returns the stamp of their receipt.
    pub(super) fn add(&mut self, units: u64, call: u64) -> u64 {
        (self.known, self.last) = (self.known.min(call), call);
        self.owed += units;
        OVERDRAWN | call
    }

    /// Pays from a lot that has come by a call; returns the units.
    ///
    /// A lot that is over pays only what was owed when it was requested: what was admitted since would have been
    /// charged too long before.
    pub(super) fn pay(&mut self, lot: &mut Lot, call: u64, is_over: bool) -> u64 {
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
    pub(super) fn charge(&mut self) -> u64 {
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
    pub(super) fn take_back(&mut self, stamp: u64, units: u64) -> (u64, u64, u64) {
        let call = stamp & !OVERDRAWN;
        let owed = if call > self.paid && call >= self.known { units.min(self.owed) } else { 0 };
        self.owed -= owed;
        self.sent = self.sent.saturating_sub(owed);
        let Some(payment) = self.payment(call) else { return (owed, 0, 0) };
        let paid = (units - owed).min(payment.units);
        payment.units -= paid;
        (owed, paid, payment.stamp)
    }

    /// Returns the inner store's stamp of units that carry this one, once a lot has paid them.
    pub(super) fn stamp_of(&mut self, stamp: u64) -> Option<u64> {
        self.payment(stamp & !OVERDRAWN).filter(|payment| payment.stamp > 0).map(|payment| payment.stamp)
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
pub(super) struct Rate {
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
    pub(super) fn hot(now: u64) -> Self {
        Self { start: now, last: now, now: HOT - 1, before: 0 }
    }

    /// Counts a request of `units`; `period` is the lifetime of a lease.
    pub(super) fn note(&mut self, now: u64, period: u64, units: u64) {
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
    pub(super) fn demand(&self) -> u64 {
        self.now.max(self.before)
    }

    /// Returns the time since the last request.
    pub(super) fn idle(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }
}
