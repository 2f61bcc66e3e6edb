//! What is known of a key, and what is owed for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::Error;
use crate::decision::{Measures, Outcome};
use crate::store::{Check, Counter, Taken};

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
}

impl Entry {
    pub(super) fn new(hash: u64, counter: &Counter) -> Self {
        Self {
            hash,
            counter: counter.clone(),
            room: 0,
            unpaid: 0,
            doubted: 0,
            paying: 0,
            paid: None,
            direct: 0,
            seen: u64::MAX,
            turns: 0,
            ticks: false,
            left: 0,
            looked: Instant::now(),
            reset: Duration::ZERO,
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
        let taken = Taken { counter: check.counter.clone(), units: check.cost, stamp: 0, slot: 0 };
        (Outcome::from_measures(check, &measures), taken)
    }

    /// What the inner store says remains, all that was charged being counted.
    pub(super) fn learn(&mut self, outcome: &Outcome, allowance: u64, sent: Instant) {
        let owed = self.owed();
        self.room = outcome.remaining().min(allowance).saturating_sub(owed);
        self.left = outcome.remaining().saturating_sub(owed);
        (self.looked, self.reset) = (sent, outcome.reset_after());
    }

    /// Takes back units that were not charged yet, or perhaps not; returns how many are left to give
    /// back.
    pub(super) fn take_back(&mut self, units: u64) -> u64 {
        let unpaid = units.min(self.unpaid);
        let doubted = (units - unpaid).min(self.doubted);
        self.unpaid -= unpaid;
        self.doubted -= doubted;
        self.left += unpaid + doubted;
        if self.direct == 0 {
            self.room += unpaid;
        }
        units - unpaid - doubted
    }

    /// Whether units charged for it may still count.
    pub(super) fn counts(&self, now: Instant) -> bool {
        self.age(now) < self.reset
    }
}

fn ticks(time: Duration, tick: u64) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX) / tick
}
