//! The balance of a key: the units left, and the debt.
//!
//! Decisions and looks of the inner store come in, and what is admitted here; whether a check is covered goes out.
//! It is a bound from below: `left` is what the inner store reported, less everything that it may not have counted
//! then, which is the debt and the metered charges on their way. Nothing here waits or calls anything; the
//! part's lock is held by the caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ledger::{Back, Ledger};
use crate::core::Error;
use crate::core::decision::{Measures, Outcome};
use crate::store::map::Entry;
use crate::store::{Check, Counter, Taken};

/// The result of a charge, once it has ended.
pub(super) type ChargeResult = watch::Receiver<Option<Arc<Error>>>;

/// What is left before the first look: no refund raises it to 0.
const UNKNOWN: i128 = i128::MIN / 2;

/// The units that this process may still admit of a key, and its debt.
///
/// `ledger.debt() + room` never exceeds the allowance, nor `room` what is `left`: the bound relies on
/// this.
#[derive(Debug)]
pub(super) struct Balance {
    /// The hash of policy and key.
    pub(super) hash: u64,
    /// With the quota of the last call of the inner store.
    pub(super) counter: Counter,
    /// Units that may still be admitted before the next look.
    room: u64,
    /// The debt, and the charges of which units can still be refunded.
    pub(super) ledger: Ledger,
    /// The result of the charge on its way, or of the last one, for tasks that wait for it.
    pub(super) charge_result: Option<ChargeResult>,
    /// Requests and resets that the inner store is deciding: nothing is admitted here meanwhile, as what is left does
    /// not include them.
    direct: usize,
    /// The least that those reported as remaining.
    seen: u64,
    /// Counts the changes that make the result of a look in flight useless.
    pub(super) turns: u64,
    /// Whether a task charges the debt at each tick.
    pub(super) ticks: bool,
    /// What remains, as last reported, less what the inner store may not have counted.
    left: i128,
    /// When the last decision or look that was used was sent.
    looked: Instant,
    /// How long the counter took then to be as unused.
    reset: Duration,
    /// The length of the window that counted then.
    window: Duration,
    /// Metered charges, begun and ended.
    meter: Meter,
    /// How often the key was reset.
    pub(super) epoch: u64,
}

/// Units that requests charged besides what they took, from the first to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Meter {
    /// Units of all charges that were begun.
    begun: u128,
    /// Units of charges that are on their way no more.
    ended: u128,
}

/// What the inner store had counted of metered charges when it was called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted(u128);

impl Entry for Balance {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl Balance {
    /// Returns the balance of a new key: it admits nothing before a decision or look.
    pub(super) fn new(hash: u64, counter: &Counter, epoch: u64) -> Self {
        Self {
            hash,
            counter: counter.clone(),
            room: 0,
            ledger: Ledger::new(),
            charge_result: None,
            direct: 0,
            seen: u64::MAX,
            turns: 0,
            ticks: false,
            left: UNKNOWN,
            looked: Instant::now(),
            reset: Duration::ZERO,
            window: counter.quota().window(),
            meter: Meter::default(),
            epoch,
        }
    }

    /// Returns whether there are units that the inner store may not have counted.
    pub(super) fn has_debt(&self) -> bool {
        self.ledger.debt() > 0
    }

    /// Returns whether there is no debt, and nothing in flight: the entry may be dropped.
    pub(super) fn is_quiet(&self) -> bool {
        !self.has_debt() && self.direct == 0 && !self.ticks && self.meter.begun == self.meter.ended
    }

    /// Returns the age of the last decision or look that was used.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.looked)
    }

    /// Returns whether a check may be admitted here. A balance older than `fresh`, or of another
    /// quota, covers nothing.
    pub(super) fn covers(&self, check: &Check, now: Instant, fresh: Duration) -> bool {
        self.direct == 0
            && self.room >= check.cost
            && self.counter.quota() == check.counter.quota()
            && self.age(now) < fresh
    }

    /// Admits a check that is [covered](Self::covers): its units are a debt from now on, and its receipt has the
    /// number of the charge they are to leave with.
    pub(super) fn spend(&mut self, check: &Check, now: Instant) -> (Outcome, Taken) {
        self.room -= check.cost;
        self.left -= i128::from(check.cost);
        let quota = check.counter.quota();
        let reset = ticks(self.reset.saturating_sub(self.age(now)), quota.tick().micros());
        let remaining = whole(self.left);
        let wait = if remaining == 0 { reset } else { 0 };
        let window = ticks(self.window, quota.tick().micros());
        let measures = Measures { fits: true, remaining, wait, reset, window, delay: 0 };
        let stamp = self.ledger.admit(check.cost);
        let taken = Taken { counter: check.counter.clone(), units: check.cost, floor: 0, stamp };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// Begins a request that the inner store decides: nothing is admitted here until it [ends](Self::leave).
    ///
    /// Returns what the inner store had counted of metered charges by then.
    pub(super) fn enter(&mut self) -> Counted {
        self.direct += 1;
        self.shut();
        self.counted()
    }

    /// Ends what was entered, with what the inner store reported as remaining, or 0 if that is unknown.
    ///
    /// Returns the least of what was reported if this was the last one entered, and `None` otherwise: results of
    /// several at once may arrive in another order than they were decided in, and the least of what they report is not
    /// more than the last one to be decided left.
    pub(super) fn leave(&mut self, remaining: u64) -> Option<u64> {
        self.seen = self.seen.min(remaining);
        self.direct -= 1;
        // A look that was sent meanwhile may not include it.
        self.turns += 1;
        if self.direct > 0 {
            return None;
        }
        Some(std::mem::replace(&mut self.seen, u64::MAX))
    }

    /// Returns whether a look that was begun at `turns` can be used.
    pub(super) fn is_as_before(&self, turns: u64) -> bool {
        self.direct == 0 && self.turns == turns
    }

    /// Admits nothing before the next look, as the balance no longer holds; looks on their way are not
    /// used.
    pub(super) fn shut(&mut self) {
        self.turns += 1;
        (self.room, self.left) = (0, UNKNOWN);
    }

    /// As [`shut`](Self::shut), and results of requests on their way are not used either.
    pub(super) fn distrust(&mut self) {
        self.shut();
        if self.direct > 0 {
            self.seen = 0;
        }
    }

    /// Returns what the inner store has counted of metered charges, for a call that is made next.
    pub(super) fn counted(&self) -> Counted {
        Counted(self.meter.ended)
    }

    /// Takes over what the inner store reported as `remaining`.
    ///
    /// It may not have counted the debt, nor metered charges but those it had `counted` when the call was `sent`.
    /// So `left = remaining - debt - metered`, and `room` is the smaller one of that and `allowance - debt`, and not
    /// less than 0.
    pub(super) fn update(
        &mut self,
        outcome: &Outcome,
        remaining: u64,
        allowance: u64,
        (sent, counted): (Instant, Counted),
    ) {
        let debt = self.ledger.debt();
        let metered = i128::try_from(self.meter.begun - counted.0).unwrap_or(i128::MAX / 2);
        self.left = i128::from(remaining) - i128::from(debt) - metered;
        self.room = whole(self.left).min(allowance.saturating_sub(debt));
        (self.looked, self.reset, self.window) = (sent, outcome.reset_after(), outcome.window());
    }

    /// Takes back units that carry the number `turn` of a charge. What was not charged yet may be admitted again.
    pub(super) fn take_back(&mut self, units: u64, turn: u64) -> Back {
        let back = self.ledger.take_back(units, turn);
        if let Back::Uncharged(units) = back {
            self.left += i128::from(units);
            self.room = if self.direct == 0 { (self.room + units).min(whole(self.left)) } else { 0 };
        }
        back
    }

    /// Lowers what is left by units that a request charges besides what it took, before they have arrived.
    pub(super) fn begin_metered(&mut self, units: u64) {
        self.meter.begun += u128::from(units);
        self.left = self.left.saturating_sub(i128::from(units));
        self.room = self.room.min(whole(self.left));
    }

    /// Ends a metered charge: its units have arrived, or it is unknown whether they have.
    pub(super) fn end_metered(&mut self, units: u64) {
        self.meter.ended += u128::from(units);
    }

    /// Forgets the debt and what was charged, as the key is reset: nothing of it is refunded any more.
    pub(super) fn forget(&mut self, epoch: u64) {
        self.ledger.forget();
        self.shut();
        self.epoch = epoch;
    }
}

/// Returns the units that are left; 0 where less than none are.
fn whole(left: i128) -> u64 {
    u64::try_from(left.max(0)).unwrap_or(u64::MAX)
}

/// Returns the whole ticks of a duration; `tick` is in microseconds.
fn ticks(time: Duration, tick: u64) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / tick
}
