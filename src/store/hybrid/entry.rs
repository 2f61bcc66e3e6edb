//! What is known of a key, and what is owed for it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Error;
use crate::decision::{Measures, Outcome};
use crate::store::{Applied, Check, Counter, Taken};

/// How a charge went, once that is known.
pub(super) type Paid = watch::Receiver<Option<Arc<Error>>>;

/// `unpaid + doubted + paying + room` never exceeds the allowance; that is what the bound rests on.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) counter: Counter,
    /// Units that may still be admitted before the next look.
    pub(super) room: u64,
    /// Units admitted and not charged.
    pub(super) unpaid: u64,
    /// Units charged once, of which nobody knows whether they were counted.
    pub(super) doubted: u64,
    /// Units in a charge on its way.
    pub(super) paying: u64,
    /// How many of those go back once it has arrived.
    pub(super) returning: u64,
    /// What was charged last, oldest first.
    charges: VecDeque<Charged>,
    /// The number of the next charge, which units that are admitted now carry; and of the last.
    turn: u64,
    last_turn: u64,
    pub(super) paid: Option<Paid>,
    /// Requests the inner store is deciding: nothing is admitted here meanwhile, for it does not know
    /// of that.
    pub(super) direct: usize,
    /// The least that those were told remains.
    pub(super) seen: u64,
    /// Counts the requests the inner store was given.
    pub(super) turns: u64,
    /// A task pays at each tick.
    pub(super) ticks: bool,
    /// What remains, as far as is known.
    left: u64,
    looked: Instant,
    reset: Duration,
    /// Charges up to this number are not remembered.
    forgotten: u64,
}

/// Charges that are remembered, so that units of them can go back.
const MOST_CHARGES: usize = 16;

/// Numbers of charges begin here: no stamp of an inner store is so large.
const TURNS: u64 = 1 << 62;

/// A number that no charge has yet.
fn next_turn() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(TURNS + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whether units carry the number of a charge, rather than a stamp of the inner store.
pub(super) fn is_turn(stamp: u64) -> bool {
    stamp >= TURNS
}

/// What the inner store has of a charge, and of those before it whose answers were lost.
#[derive(Debug)]
struct Charged {
    turn: u64,
    /// The number of the charge before it that arrived.
    after: u64,
    /// Units that can still go back.
    units: u64,
    stamp: u64,
}

impl Entry {
    pub(super) fn new(hash: u64, counter: &Counter) -> Self {
        let turn = next_turn();
        Self {
            hash,
            counter: counter.clone(),
            room: 0,
            unpaid: 0,
            doubted: 0,
            paying: 0,
            returning: 0,
            charges: VecDeque::new(),
            turn,
            last_turn: turn,
            paid: None,
            direct: 0,
            seen: u64::MAX,
            turns: 0,
            ticks: false,
            left: 0,
            looked: Instant::now(),
            reset: Duration::ZERO,
            forgotten: turn - 1,
        }
    }

    pub(super) fn owes(&self) -> bool {
        self.owed() > 0
    }

    fn owed(&self) -> u64 {
        self.unpaid + self.doubted + self.paying
    }

    /// Nothing is owed or asked.
    pub(super) fn is_quiet(&self) -> bool {
        !self.owes() && self.direct == 0 && !self.ticks
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.looked)
    }

    pub(super) fn covers(&self, check: &Check, now: Instant, fresh: Duration) -> bool {
        self.direct == 0
            && self.room >= check.cost
            && self.counter.quota == check.counter.quota
            && self.age(now) < fresh
    }

    pub(super) fn spend(&mut self, check: &Check, now: Instant) -> (Outcome, Taken) {
        self.room -= check.cost;
        self.unpaid += check.cost;
        self.left = self.left.saturating_sub(check.cost);
        let quota = &check.counter.quota;
        let reset = ticks(self.reset.saturating_sub(self.age(now)), quota.tick().micros());
        let wait = if self.left == 0 { reset } else { 0 };
        let measures = Measures { fits: true, remaining: self.left, wait, reset, delay: 0 };
        let taken = Taken { counter: check.counter.clone(), units: check.cost, floor: 0, stamp: self.turn, slot: 0 };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// What the inner store says remains, all that was charged being counted.
    pub(super) fn learn(&mut self, outcome: &Outcome, allowance: u64, sent: Instant) {
        let owed = self.owed();
        self.room = outcome.remaining().min(allowance).saturating_sub(owed);
        self.left = outcome.remaining().saturating_sub(owed);
        (self.looked, self.reset) = (sent, outcome.reset_after());
    }

    /// Takes back units that carry the number of a charge; returns what is to be given back of a charge
    /// that has arrived, with the inner store's stamp of it.
    ///
    /// What was not charged yet never is. What may have been counted is not charged again, and what was
    /// charged too long ago stays taken.
    pub(super) fn take_back(&mut self, units: u64, turn: u64) -> Option<(u64, u64)> {
        if turn == self.turn {
            let unpaid = units.min(self.unpaid);
            self.unpaid -= unpaid;
            self.left += unpaid;
            self.room += if self.direct == 0 { unpaid } else { 0 };
            return None;
        }
        if turn <= self.forgotten {
            return None;
        }
        if let Some(charged) = self.charges.iter_mut().find(|charged| charged.turn >= turn) {
            let units = if turn > charged.after { units.min(charged.units) } else { 0 };
            charged.units -= units;
            return (units > 0).then_some((units, charged.stamp));
        }
        if self.paying > 0 {
            self.returning = (self.returning + units).min(self.paying);
        } else {
            self.doubted -= units.min(self.doubted);
        }
        None
    }

    /// Begins a charge of all that is owed; returns its units, for the first time and again.
    pub(super) fn charge(&mut self) -> (u64, u64) {
        let (first, again) = (mem::take(&mut self.unpaid), mem::take(&mut self.doubted));
        self.paying = first + again;
        (self.last_turn, self.turn) = (self.turn, next_turn());
        (first, again)
    }

    /// The charge has arrived; returns what is to be given back of it.
    pub(super) fn charged(&mut self, applied: &Applied) -> u64 {
        let back = mem::take(&mut self.returning).min(applied.units);
        let after = self.charges.back().map_or(self.forgotten, |charged| charged.turn);
        let units = applied.units - back;
        self.charges.push_back(Charged { turn: self.last_turn, after, units, stamp: applied.stamp });
        if self.charges.len() > MOST_CHARGES
            && let Some(oldest) = self.charges.pop_front()
        {
            self.forgotten = oldest.turn;
        }
        back
    }
}

fn ticks(time: Duration, tick: u64) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / tick
}
