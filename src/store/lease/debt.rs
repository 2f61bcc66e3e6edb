//! What a hot key owes: units that were admitted and that the inner store is not known to have charged.
//!
//! Overdrawn units carry the number of the lease call that was in flight. By it a refund finds them: they are owed
//! still, or were paid by a lot or a charge, of which the last [`MOST_PAYMENTS`] are kept.
//!
//! Invariant: units are paid in the order of their numbers, so all with a number up to `paid` are paid, and of the
//! others some may be.

use std::collections::VecDeque;
use std::mem;

use super::call::Want;
use super::lot::Lot;
use crate::store::Applied;

/// Set in the stamps of overdrawn units; the rest is the number of a lease call. Inner stores' stamps are below.
pub(super) const OVERDRAWN: u64 = 1 << 63;

/// Payments that are kept for refunds.
const MOST_PAYMENTS: usize = 16;

/// The debt of one key.
#[derive(Debug)]
pub(super) struct Debt {
    /// Units that the inner store is not known to have charged.
    pub(super) owed: u64,
    /// Whether the last lease call was granted: only then more may be owed.
    pub(super) may_grow: bool,
    /// The first number of which units are known.
    known: u64,
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
    /// Units that it took, less those that were refunded.
    units: u64,
    /// Units that the inner store left out of a charge, which are refunded first.
    cut: u64,
}

/// Where refunded units are taken from.
#[derive(Debug, Default)]
pub(super) struct Reversal {
    /// They were owed.
    pub(super) owed: u64,
    /// They were never charged.
    pub(super) cut: u64,
    /// They were charged, with this stamp.
    pub(super) paid: u64,
    pub(super) stamp: u64,
}

impl Default for Debt {
    /// No debt, that may not grow.
    fn default() -> Self {
        Self { owed: 0, may_grow: false, known: u64::MAX, paid: 0, payments: VecDeque::new() }
    }
}

impl Debt {
    /// Whether payments are kept for refunds.
    pub(super) fn is_remembered(&self) -> bool {
        !self.payments.is_empty()
    }

    /// Owes units that are admitted during a call; returns the stamp of their receipt.
    pub(super) fn add(&mut self, units: u64, call: u64) -> u64 {
        self.known = self.known.min(call);
        self.owed += units;
        OVERDRAWN | call
    }

    /// Pays from a lot that has come; returns the units.
    ///
    /// A lot that is over pays only what was owed when it was requested: what was admitted since would have been
    /// charged too long before.
    pub(super) fn pay(&mut self, lot: &mut Lot, want: &Want, is_over: bool) -> u64 {
        let pays_all = !is_over && self.owed <= lot.left;
        let units = if pays_all { self.owed } else { self.owed.min(want.owed).min(lot.left) };
        lot.left -= units;
        self.owed -= units;
        self.paid = if pays_all { want.call } else { want.call - 1 };
        if units > 0 {
            self.note(Payment { paid: self.paid, stamp: lot.stamp(), units, cut: 0 });
        }
        units
    }

    /// Ends a charge, of which `applied` were charged, if that is known; returns how many of them are to be
    /// refunded, as they were given back meanwhile, and how many were never charged.
    pub(super) fn charged(&mut self, call: u64, applied: Option<&Applied>) -> (u64, u64) {
        let owed = mem::take(&mut self.owed);
        self.paid = call;
        let Some(Applied { units: taken, stamp, .. }) = applied else {
            // Nobody knows whether there is something to refund.
            self.note(Payment { paid: call, stamp: 0, units: 0, cut: 0 });
            return (0, 0);
        };
        let refund = taken.saturating_sub(owed);
        let cut = owed.saturating_sub(*taken);
        self.note(Payment { paid: call, stamp: *stamp, units: taken - refund, cut });
        (refund, cut)
    }

    fn note(&mut self, payment: Payment) {
        self.payments.push_back(payment);
        if self.payments.len() > MOST_PAYMENTS {
            self.known = self.payments.pop_front().map_or(0, |payment| payment.paid + 1);
        }
    }

    /// Takes units back that carry this stamp.
    pub(super) fn take_back(&mut self, stamp: u64, units: u64) -> Reversal {
        let call = stamp & !OVERDRAWN;
        if call < self.known {
            return Reversal::default();
        }
        let (owed, payment) = if call > self.paid {
            (units.min(self.owed), self.payments.back_mut())
        } else {
            (0, self.payments.iter_mut().find(|payment| payment.paid >= call))
        };
        self.owed -= owed;
        let Some(payment) = payment else { return Reversal { owed, ..Reversal::default() } };
        let cut = (units - owed).min(payment.cut);
        let paid = (units - owed - cut).min(payment.units);
        (payment.cut, payment.units) = (payment.cut - cut, payment.units - paid);
        Reversal { owed, cut, paid, stamp: payment.stamp }
    }

    /// Returns the inner store's stamp of units that carry this one, once they are paid.
    pub(super) fn stamp_of(&self, stamp: u64) -> Option<u64> {
        let call = stamp & !OVERDRAWN;
        let payment = self.payments.iter().find(|payment| payment.paid >= call);
        payment.filter(|_| call >= self.known).map(|payment| payment.stamp)
    }
}
