//! The balance of a key: the units left, and the debt.
//!
//! Decisions and looks of the inner store come in, and what is admitted here; whether a check is covered goes out.
//! It is a bound from below: `left` is what the inner store reported, less everything that it may not have counted
//! then. That is the debt, charges that have ended since its call was sent, and what was on its way in another call:
//! metered charges and the costs of requests that the inner store decides. Nothing here waits or calls anything; the
//! part's lock is held by the caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ledger::{Back, Ledger};
use super::left::Left;
use crate::core::Error;
use crate::core::decision::{Measures, Outcome};
use crate::store::map::Entry;
use crate::store::{Check, Counter, Taken};

/// The result of a charge, once it has ended.
pub(super) type ChargeResult = watch::Receiver<Option<Arc<Error>>>;

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
    /// Resets on their way, and requests that are to be decided with all units counted: nothing is admitted here
    /// meanwhile.
    held: usize,
    /// Whether a task charges the debt at each tick.
    pub(super) ticks: bool,
    /// What remains, as last reported, less what the inner store may not have counted.
    left: Left,
    /// When the last decision or look that was used was sent.
    looked: Instant,
    /// How long the counter took then to be as unused.
    reset: Duration,
    /// The length of the window that counted then.
    window: Duration,
    /// What is charged.
    meter: Meter,
    /// How often the key was reset.
    pub(super) epoch: u64,
}

/// Units that are charged, from the first to the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Meter {
    /// Units of metered charges, and costs of requests that the inner store decides, that were begun.
    begun: u128,
    /// Units of those that are on their way no more.
    ended: u128,
    /// Units of debts that are none any more, as they were charged or given up.
    charged: u128,
}

/// A call of the inner store: when it was sent, and what had been counted of charges by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    at: Instant,
    turn: u64,
    ended: u128,
    charged: u128,
}

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
            held: 0,
            ticks: false,
            left: Left::unknown(),
            looked: Instant::now(),
            reset: Duration::ZERO,
            window: counter.quota.window(),
            meter: Meter::default(),
            epoch,
        }
    }

    /// Returns whether there are units that the inner store may not have counted.
    pub(super) fn has_debt(&self) -> bool {
        self.ledger.debt() > 0
    }

    /// Returns whether there is a debt that what is left may not cover, with all that is on its way.
    pub(super) fn must_charge(&self) -> bool {
        self.has_debt() && self.left.least().is_none_or(|left| left < 0)
    }

    /// Returns whether there is no debt, and nothing in flight: the entry may be dropped.
    pub(super) fn is_quiet(&self) -> bool {
        !self.has_debt() && self.held == 0 && !self.ticks && self.meter.begun == self.meter.ended
    }

    /// Returns the age of the last decision or look that was used.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.looked)
    }

    /// Returns whether a check may be admitted here. A balance older than `fresh`, or of another
    /// quota, covers nothing.
    pub(super) fn covers(&self, check: &Check, now: Instant, fresh: Duration) -> bool {
        self.held == 0 && self.room >= check.cost && self.counter.quota == check.counter.quota && self.age(now) < fresh
    }

    /// Admits a check that is [covered](Self::covers): its units are a debt from now on, and its receipt has the
    /// number of the charge they are to leave with.
    pub(super) fn spend(&mut self, check: &Check, now: Instant) -> (Outcome, Taken) {
        self.room -= check.cost;
        self.left.change(-i128::from(check.cost));
        let quota = &check.counter.quota;
        let reset = ticks(self.reset.saturating_sub(self.age(now)), quota.tick().micros());
        let remaining = self.whole();
        let wait = if remaining == 0 { reset } else { 0 };
        let window = ticks(self.window, quota.tick().micros());
        let measures = Measures { fits: true, remaining, wait, reset, window, delay: 0 };
        let stamp = self.ledger.admit(check.cost);
        let taken = Taken { counter: check.counter.clone(), units: check.cost, floor: 0, stamp };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// Begins a request that the inner store decides: what is left is lowered by its cost until it [ends](Self::end),
    /// and unknown if the balance was of another quota.
    pub(super) fn enter(&mut self, check: &Check) {
        if self.counter.quota != check.counter.quota {
            self.counter.quota = check.counter.quota;
            self.shut();
        }
        self.begin(check.cost);
    }

    /// Admits nothing here until it is [released](Self::release).
    pub(super) fn hold(&mut self) {
        self.held += 1;
    }

    /// Ends what was [held](Self::hold).
    pub(super) fn release(&mut self) {
        self.held -= 1;
    }

    /// Admits nothing before the next look, as the balance no longer holds; results of calls on their way are not
    /// relied on.
    pub(super) fn shut(&mut self) {
        self.left.forget();
        self.room = 0;
    }

    /// Returns what the inner store has counted of charges, for a call that is made next.
    pub(super) fn sent(&self) -> Sent {
        let Meter { ended, charged, .. } = self.meter;
        Sent { at: Instant::now(), turn: self.left.turn(), ended, charged }
    }

    /// Takes over what a call of the inner store reported as remaining. `own` is what the call itself has
    /// [begun](Self::begin).
    ///
    /// Returns whether that covers what was admitted here and may not have been counted then.
    ///
    /// That is the debt, and charges that have ended since it was sent. Metered charges and costs of requests may not
    /// have been counted either, but those that had ended when it was sent. So `left` is `remaining` less all these,
    /// and `room` the smaller one of that and `allowance - uncounted`, and not less than 0.
    pub(super) fn update(&mut self, outcome: &Outcome, allowance: u64, sent: Sent, own: u64) -> bool {
        let remaining = i128::from(outcome.remaining());
        let uncounted = u128::from(self.ledger.debt()) + (self.meter.charged - sent.charged);
        let begun = self.meter.begun - sent.ended - u128::from(own);
        let uncounted = u64::try_from(uncounted).unwrap_or(u64::MAX);
        let begun = i128::try_from(begun).unwrap_or(i128::MAX / 2);
        self.left.note(sent.turn, remaining - i128::from(uncounted) - begun);
        self.room = self.whole().min(allowance.saturating_sub(uncounted));
        if sent.at >= self.looked {
            (self.looked, self.reset, self.window) = (sent.at, outcome.reset_after(), outcome.window());
        }
        remaining >= i128::from(uncounted)
    }

    /// Takes back units that carry the number `turn` of a charge. What was not charged yet may be admitted again.
    pub(super) fn take_back(&mut self, units: u64, turn: u64) -> Back {
        let back = self.ledger.take_back(units, turn);
        if let Back::Uncharged(units) = back {
            self.left.change(i128::from(units));
            self.room = (self.room + units).min(self.whole());
        }
        back
    }

    /// Notes that a charge has ended. Results of calls that were sent before may not include it.
    pub(super) fn end_charge<T>(&mut self, end: impl FnOnce(&mut Ledger) -> T) -> T {
        let before = self.ledger.debt();
        let ended = end(&mut self.ledger);
        self.meter.charged += u128::from(before.saturating_sub(self.ledger.debt()));
        ended
    }

    /// Lowers what is left by units that are charged besides the debt, before they have arrived.
    pub(super) fn begin(&mut self, units: u64) {
        self.meter.begun += u128::from(units);
        self.left.change(-i128::from(units));
        self.room = self.room.min(self.whole());
    }

    /// Ends what was [begun](Self::begin): its units have arrived, or it is unknown whether they have.
    pub(super) fn end(&mut self, units: u64) {
        self.meter.ended += u128::from(units);
    }

    /// Forgets the debt and what was charged, as the key is reset: nothing of it is refunded any more.
    pub(super) fn forget(&mut self, epoch: u64) {
        self.ledger.forget();
        self.shut();
        self.epoch = epoch;
    }

    /// Returns the units that are left; 0 where less than none are, or that is unknown.
    fn whole(&self) -> u64 {
        u64::try_from(self.left.least().unwrap_or(0).max(0)).unwrap_or(u64::MAX)
    }
}

/// Returns the whole ticks of a duration; `tick` is in microseconds.
fn ticks(time: Duration, tick: u64) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / tick
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Key, Quota};
    use crate::store::Applied;

    const ALLOWANCE: u64 = 50;

    fn check(cost: u64) -> Check {
        let name = "policy".try_into().expect("a valid name");
        Check::new(Counter::new(name, Key::new("key", ""), Quota::per_hour(100)), cost)
    }

    /// A balance of which 20 units were left at the last look.
    fn looked() -> Balance {
        let mut balance = Balance::new(0, &check(0).counter, 0);
        let sent = balance.sent();
        assert!(balance.update(&Outcome::allowed(&check(0), 20), ALLOWANCE, sent, 0));
        balance
    }

    #[test]
    fn what_a_request_on_its_way_may_take_is_not_left() {
        let mut balance = looked();
        balance.enter(&check(5));
        assert_eq!((balance.room, balance.whole()), (15, 15));
        let look = balance.sent();
        balance.end(5);
        balance.update(&Outcome::allowed(&check(0), 20), ALLOWANCE, look, 0);
        assert_eq!(balance.room, 15, "the look may have been before it");
        let look = balance.sent();
        balance.update(&Outcome::allowed(&check(0), 17), ALLOWANCE, look, 0);
        assert_eq!(balance.room, 17);
    }

    #[test]
    fn the_result_of_a_request_has_its_own_cost_but_not_those_of_others() {
        let mut balance = looked();
        balance.enter(&check(5));
        let sent = balance.sent();
        balance.enter(&check(3));
        balance.end(5);
        assert!(balance.update(&Outcome::allowed(&check(5), 15), ALLOWANCE, sent, 5));
        assert_eq!(balance.room, 12);
    }

    #[test]
    fn a_charge_that_ended_while_a_call_was_on_its_way_may_not_be_in_its_result() {
        let mut balance = looked();
        balance.enter(&check(1));
        let sent = balance.sent();
        drop(balance.spend(&check(8), Instant::now()));
        balance.ledger.begin().expect("there is a debt");
        balance.end_charge(|ledger| ledger.arrived(&Applied::new(8, 1)));
        balance.end(1);
        assert!(balance.update(&Outcome::allowed(&check(1), 19), 15, sent, 1));
        assert_eq!((balance.whole(), balance.room), (11, 7), "of 19, and of an allowance of 15");
        balance.enter(&check(1));
        balance.end(1);
        assert!(!balance.update(&Outcome::allowed(&check(1), 7), 15, sent, 1), "8 units may be counted beside it");
    }

    #[test]
    fn nothing_is_left_under_another_quota_before_its_first_result() {
        let mut balance = looked();
        let before = balance.sent();
        let other = Check { counter: Counter { quota: Quota::per_hour(50), ..check(1).counter }, ..check(1) };
        balance.enter(&other);
        assert_eq!(balance.room, 0);
        let sent = balance.sent();
        balance.update(&Outcome::allowed(&check(0), 20), ALLOWANCE, before, 0);
        assert_eq!(balance.room, 0, "it was of the quota before");
        balance.update(&Outcome::allowed(&other, 30), ALLOWANCE, sent, 1);
        assert_eq!(balance.room, 19, "the least of both, less what is on its way");
    }
}
