//! The debt of a key, by the numbers of its charges.
//!
//! Units carry the number of the charge they are to leave with. Numbers only grow: up to `over` a unit
//! is in no charge to come, up to `once` it was charged and may have to be again, up to `sent` it is in
//! the charge on its way, and after that it was not charged yet.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::Applied;

/// Charges that are kept, so that units of them can be refunded.
const MOST_CHARGES: usize = 16;

/// Numbers of charges begin here: no stamp of an inner store is so large.
const TURNS: u64 = 1 << 62;

/// A number that no charge has yet.
///
/// Numbers are unique in this process, so a stamp is read only by the ledger that it comes from.
fn next_turn() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(TURNS + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether units carry the number of a charge, rather than a stamp of the inner store.
pub(super) fn is_turn(stamp: u64) -> bool {
    stamp >= TURNS
}

/// The debt of one key. A unit is in one of `uncharged`, `doubted`, `flight` and `charges`, or nowhere any more.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Units admitted and not charged.
    uncharged: u64,
    /// Units charged once, which may or may not have been counted.
    doubted: u64,
    /// The charge on its way, if there is one.
    flight: Option<Flight>,
    /// What was charged last, oldest first.
    charges: VecDeque<Charged>,
    /// Units up to this number are in no charge to come.
    over: u64,
    /// Units after `over` up to this number were charged once, and may have to be again.
    once: u64,
    /// Units after `once` up to this number are in the charge on its way.
    sent: u64,
    /// The number of the next charge, which units that are admitted now carry.
    turn: u64,
}

/// A charge on its way.
#[derive(Debug)]
struct Flight {
    /// Units on their way for the first time, and how many of them are refunded once it has arrived.
    first: u64,
    first_back: u64,
    /// Units that may have been counted before, and how many of them are refunded.
    again: u64,
    again_back: u64,
    /// The counter was reset meanwhile: nothing of it is a debt, nor refunded.
    is_void: bool,
}

/// What the inner store has of a charge, and of those before it whose results were lost.
#[derive(Debug)]
struct Charged {
    /// The number of the charge.
    turn: u64,
    /// Units up to this number were not in it.
    after: u64,
    /// Units that can still be refunded.
    units: u64,
    /// Units it left out: they are no debt, and the first to be taken back.
    cut: u64,
    /// The inner store's stamp of the charge, by which its units are refunded.
    stamp: u64,
}

/// The state of units that are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// They were not charged, and are not going to be.
    Uncharged(u64),
    /// They are not charged again, or refunded once their charge has arrived.
    Deferred(u64),
    /// They are to be refunded in the inner store, with the inner store's stamp.
    Charged { units: u64, stamp: u64 },
    /// They stay taken.
    Nothing,
}

impl Ledger {
    /// Returns a ledger without debts.
    pub(super) fn new() -> Self {
        let turn = next_turn();
        let before = turn - 1;
        Self {
            uncharged: 0,
            doubted: 0,
            flight: None,
            charges: VecDeque::new(),
            over: before,
            once: before,
            sent: before,
            turn,
        }
    }

    /// Units that the inner store may not have counted.
    pub(super) fn debt(&self) -> u64 {
        self.uncharged + self.doubted + self.flight.as_ref().map_or(0, |flight| flight.first + flight.again)
    }

    /// Admits units; returns the number they carry.
    pub(super) fn admit(&mut self, units: u64) -> u64 {
        self.uncharged += units;
        self.turn
    }

    /// Begins a charge of the whole debt, unless one is on its way; returns its units, for the first
    /// time and again.
    pub(super) fn begin(&mut self) -> Option<(u64, u64)> {
        if self.flight.is_some() || self.debt() == 0 {
            return None;
        }
        let (first, again) = (mem::take(&mut self.uncharged), mem::take(&mut self.doubted));
        self.flight = Some(Flight { first, first_back: 0, again, again_back: 0, is_void: false });
        (self.sent, self.turn) = (self.turn, next_turn());
        Some((first, again))
    }

    /// The charge has arrived; returns how many units of it are to be refunded.
    ///
    /// Units that the store left out are no debt, and are counted against those first.
    pub(super) fn arrived(&mut self, applied: &Applied) -> u64 {
        let Some(flight) = self.flight.take().filter(|flight| !flight.is_void) else { return 0 };
        let sent = flight.first + flight.again;
        let (units, returning) = (applied.units.min(sent), flight.first_back + flight.again_back);
        let cut = sent - units;
        let back = returning.saturating_sub(cut);
        let (turn, after, stamp) = (self.sent, self.over, applied.stamp);
        let charged = Charged { turn, after, units: units - back, cut: cut.saturating_sub(returning), stamp };
        self.charges.push_back(charged);
        if self.charges.len() > MOST_CHARGES {
            self.charges.pop_front();
        }
        (self.over, self.once) = (self.sent, self.sent);
        back
    }

    /// The result of the charge was lost. What was sent for the first time may be sent again.
    ///
    /// What was sent for the second time is not sent again.
    pub(super) fn lost(&mut self) {
        if let Some(flight) = self.flight.take().filter(|flight| !flight.is_void) {
            (self.over, self.once) = (self.once, self.sent);
            self.doubted = flight.first - flight.first_back;
        }
    }

    /// The charge was not sent.
    ///
    /// All of it is a debt as before, less what was taken back meanwhile.
    pub(super) fn not_sent(&mut self) {
        if let Some(flight) = self.flight.take().filter(|flight| !flight.is_void) {
            self.sent = self.once;
            self.uncharged += flight.first - flight.first_back;
            self.doubted = flight.again - flight.again_back;
        }
    }

    /// Takes back units that carry the number of a charge.
    ///
    /// What may have been counted is not charged again, and what was charged too long ago stays taken.
    pub(super) fn take_back(&mut self, units: u64, turn: u64) -> Back {
        if turn > self.sent {
            return Back::Uncharged(take(&mut self.uncharged, units));
        }
        if turn <= self.over {
            return self.take_back_charged(units, turn);
        }
        let Some(flight) = &mut self.flight else { return Back::Deferred(take(&mut self.doubted, units)) };
        let (of, back) = if turn > self.once {
            (flight.first, &mut flight.first_back)
        } else {
            (flight.again, &mut flight.again_back)
        };
        let units = units.min(of - *back);
        *back += units;
        Back::Deferred(units)
    }

    /// Takes back units of a charge that has arrived. Units that the store left out are not refunded a second time.
    fn take_back_charged(&mut self, units: u64, turn: u64) -> Back {
        let charged = self.charges.iter_mut().find(|charged| charged.turn >= turn);
        let Some(charged) = charged.filter(|charged| turn > charged.after) else { return Back::Nothing };
        let rest = units - take(&mut charged.cut, units);
        match take(&mut charged.units, rest) {
            0 => Back::Nothing,
            units => Back::Charged { units, stamp: charged.stamp },
        }
    }

    /// Drops all debts, and refunds nothing of what was admitted or charged until now.
    pub(super) fn forget(&mut self) {
        (self.uncharged, self.doubted) = (0, 0);
        self.charges.clear();
        if let Some(flight) = &mut self.flight {
            flight.is_void = true;
        }
        (self.over, self.once, self.sent) = (self.turn, self.turn, self.turn);
        self.turn = next_turn();
    }
}

/// Takes up to so many units of what there is.
///
/// Returns how many these are.
fn take(there: &mut u64, units: u64) -> u64 {
    let taken = units.min(*there);
    *there -= taken;
    taken
}
