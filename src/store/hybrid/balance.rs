//! What is known of a key: what is left of it, and what is owed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ledger::{Back, Ledger};
use crate::core::Error;
use crate::core::decision::{Measures, Outcome};
use crate::store::map::Entry;
use crate::store::{Check, Counter, Taken};

/// How a charge went, once that is known.
pub(super) type Paid = watch::Receiver<Option<Arc<Error>>>;

/// What is left before the first look: no refund makes up for it.
const UNKNOWN: i128 = i128::MIN / 2;

/// What this process may still admit of a key, and what it owes for it.
///
/// `ledger.owed() + room` never exceeds the allowance, nor `room` what is `left`: that is what the bound
/// rests on.
#[derive(Debug)]
pub(super) struct Balance {
    pub(super) hash: u64,
    pub(super) counter: Counter,
    /// Units that may still be admitted before the next look.
    room: u64,
    pub(super) ledger: Ledger,
    pub(super) paid: Option<Paid>,
    /// Requests and resets the inner store is given: nothing is admitted here meanwhile, for it does not
    /// know of that.
    direct: usize,
    /// The least that those were told remains.
    seen: u64,
    /// Counts what makes the answer to a look say nothing that is on its way.
    pub(super) turns: u64,
    /// A task pays at each tick.
    pub(super) ticks: bool,
    /// What remains, as far as is known, less what the inner store may not have counted.
    left: i128,
    looked: Instant,
    reset: Duration,
    meter: Meter,
    /// Resets of the key.
    pub(super) epoch: u64,
}

/// Units that requests charged besides what they took, from the first to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Meter {
    begun: u128,
    /// Units of charges that are on their way no more.
    ended: u128,
}

/// What the inner store had counted of metered charges when it was asked something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted(u128);

impl Entry for Balance {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl Balance {
    pub(super) fn new(hash: u64, counter: &Counter, epoch: u64) -> Self {
        Self {
            hash,
            counter: counter.clone(),
            room: 0,
            ledger: Ledger::new(),
            paid: None,
            direct: 0,
            seen: u64::MAX,
            turns: 0,
            ticks: false,
            left: UNKNOWN,
            looked: Instant::now(),
            reset: Duration::ZERO,
            meter: Meter::default(),
            epoch,
        }
    }

    pub(super) fn owes(&self) -> bool {
        self.ledger.owed() > 0
    }

    /// Nothing is owed, asked or on its way.
    pub(super) fn is_quiet(&self) -> bool {
        !self.owes() && self.direct == 0 && !self.ticks && self.meter.begun == self.meter.ended
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
        self.left -= i128::from(check.cost);
        let quota = &check.counter.quota;
        let reset = ticks(self.reset.saturating_sub(self.age(now)), quota.tick().micros());
        let remaining = whole(self.left);
        let wait = if remaining == 0 { reset } else { 0 };
        let measures = Measures { fits: true, remaining, wait, reset, delay: 0 };
        let stamp = self.ledger.admit(check.cost);
        let taken = Taken { counter: check.counter.clone(), units: check.cost, floor: 0, stamp, slot: 0 };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// Begins what the inner store is given: nothing is admitted here meanwhile.
    pub(super) fn enter(&mut self) -> Counted {
        self.direct += 1;
        self.shut();
        self.counted()
    }

    /// Ends what was entered, with what was told remains, if anything was. Returns that if it was the last:
    /// several at once may be told in another order than they were decided in, and the least of what they
    /// are told is not more than the last of them left.
    pub(super) fn leave(&mut self, remaining: u64) -> Option<u64> {
        self.seen = self.seen.min(remaining);
        self.direct -= 1;
        // A look that was asked for meanwhile may not know of it.
        self.turns += 1;
        if self.direct > 0 {
            return None;
        }
        Some(std::mem::replace(&mut self.seen, u64::MAX))
    }

    /// Whether a look that is told something now can be learnt from.
    pub(super) fn is_as_before(&self, turns: u64) -> bool {
        self.direct == 0 && self.turns == turns
    }

    /// Admits nothing before the next look, as what was known no longer holds.
    pub(super) fn shut(&mut self) {
        self.turns += 1;
        (self.room, self.left) = (0, UNKNOWN);
    }

    /// As [`shut`](Self::shut), and what is on its way tells nothing either.
    pub(super) fn distrust(&mut self) {
        self.shut();
        if self.direct > 0 {
            self.seen = 0;
        }
    }

    /// What the inner store has counted, for the question that is asked next.
    pub(super) fn counted(&self) -> Counted {
        Counted(self.meter.ended)
    }

    /// What the inner store says remains: it may not have counted what is owed, nor metered charges but those
    /// it had `counted` when it was asked.
    pub(super) fn learn(
        &mut self,
        outcome: &Outcome,
        remaining: u64,
        allowance: u64,
        (sent, counted): (Instant, Counted),
    ) {
        let owed = self.ledger.owed();
        let metered = i128::try_from(self.meter.begun - counted.0).unwrap_or(i128::MAX / 2);
        self.left = i128::from(remaining) - i128::from(owed) - metered;
        self.room = whole(self.left).min(allowance.saturating_sub(owed));
        (self.looked, self.reset) = (sent, outcome.reset_after());
    }

    /// Takes back units that carry the number of a charge.
    pub(super) fn take_back(&mut self, units: u64, turn: u64) -> Back {
        let back = self.ledger.take_back(units, turn);
        if let Back::Unpaid(units) = back {
            self.left += i128::from(units);
            self.room = if self.direct == 0 { (self.room + units).min(whole(self.left)) } else { 0 };
        }
        back
    }

    /// A request charges units besides what it took: what is left is less at once.
    pub(super) fn begin_metered(&mut self, units: u64) {
        self.meter.begun += u128::from(units);
        self.left = self.left.saturating_sub(i128::from(units));
        self.room = self.room.min(whole(self.left));
    }

    /// They have arrived, or nobody knows.
    pub(super) fn end_metered(&mut self, units: u64) {
        self.meter.ended += u128::from(units);
    }

    /// Nothing is owed, and nothing goes back of what was taken until now.
    pub(super) fn forget(&mut self, epoch: u64) {
        self.ledger.forget();
        self.shut();
        self.epoch = epoch;
    }
}

/// Units that there are, if any.
fn whole(left: i128) -> u64 {
    u64::try_from(left.max(0)).unwrap_or(u64::MAX)
}

fn ticks(time: Duration, tick: u64) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / tick
}
