//! Slots that this process holds, and settlements to send for them. Uses neither a store nor a runtime.
//!
//! Slots of a counter with the same stamp expire together, so they are one *cohort*, whichever requests hold them. A
//! counter has as many cohorts as its state, however many slots. A *hold* is the number of slots of a counter that one
//! check has, and the time until which it may hold them. Its cohort does not matter.
//!
//! A release or renewal is of one cohort:
//!
//! | sent | result | then |
//! | --- | --- | --- |
//! | release | made, or perhaps made | done: sent twice, it could release the slots of others |
//! | release | certainly not sent | it is sent with a later heartbeat, unless the slots have expired by then |
//! | renewal | made | the slots have the new stamp |
//! | renewal | certainly not sent | it is sent with the next heartbeat |
//! | renewal | perhaps made | it is sent by the same stamp a while later |
//!
//! A second renewal by one stamp never makes a store count too little: it moves as many slots of others as the first
//! one left behind, until the others renew theirs. Until then, at most for a TTL, they count twice.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::core::Error;
use crate::core::algorithm::HEARTBEAT;
use crate::store::{Change, ChangeResult, Counter, Receipt, ReceiptItem, Settlement, StoreId};

/// Beyond it, settlements wait, and releases of a cohort are joined.
const MAX_IN_FLIGHT: usize = 1_024;

type CounterRef = (StoreId, Counter);

pub(super) type HoldId = (Instant, u64);

pub(super) type Settled = Option<Result<Vec<ChangeResult>, Error>>;

/// Grows and shrinks with the number of slots.
#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    counters: HashMap<CounterRef, CounterSlots>,
    holds: BTreeMap<HoldId, (CounterRef, u64)>,
    queue: VecDeque<CounterRef>,
    in_flight: usize,
    last_hold: u64,
}

/// Slots of one counter, except those of settlements in flight.
#[derive(Debug, Default)]
struct CounterSlots {
    cohorts: SmallVec<[SlotCohort; 1]>,
    /// Number of slots whose renewal, which changes the stamp, is in flight.
    renewing: u64,
    /// How many of these to release once it is done.
    owed: u64,
    is_queued: bool,
}

/// Slots with one stamp, held or to be released.
#[derive(Clone, Copy, Debug)]
struct SlotCohort {
    is_held: bool,
    units: u64,
    stamp: u64,
    /// The earliest time of taking or renewal.
    since: Instant,
    due: Instant,
    /// Number of the hold that took the first slot.
    number: u64,
}

#[derive(Clone, Debug)]
pub(super) struct PendingSettlement {
    counter: CounterRef,
    cohort: SlotCohort,
    sent: Instant,
}

impl PendingSettlement {
    pub(super) fn settlement(&self) -> (Receipt, [Settlement; 1]) {
        let ((store, counter), SlotCohort { is_held, units, stamp, .. }) = (&self.counter, self.cohort);
        let change = if is_held { Change::Renew(units) } else { Change::Refund(units) };
        (Receipt::new(*store, [ReceiptItem::new(counter.clone(), units, stamp)]), [Settlement::new(0, change)])
    }
}

impl HeldSlots {
    pub(super) fn hold(&mut self, store: StoreId, taken: &ReceiptItem, now: Instant) -> HoldId {
        let (counter, quota) = ((store, taken.counter.clone()), taken.counter.quota());
        let ReceiptItem { units, stamp, .. } = *taken;
        self.last_hold += 1;
        let hold = (now + quota.hold(), self.last_hold);
        let (due, number) = (now + renewed_after(quota.window()), self.last_hold);
        let cohort = SlotCohort { is_held: true, units, stamp, since: now, due, number };
        self.counters.entry(counter.clone()).or_default().add(cohort);
        self.holds.insert(hold, (counter, units));
        hold
    }

    /// Returns the number of slots: 0 if they were released before.
    pub(super) fn release(&mut self, hold: HoldId, now: Instant) -> u64 {
        let Some((counter, units)) = self.holds.remove(&hold) else { return 0 };
        let slots = self.counters.entry(counter.clone()).or_default();
        slots.release(units, now);
        if slots.joins_queue(now) {
            self.queue.push_back(counter);
        }
        units
    }

    /// Releases holds at their limit, and queues all due settlements by time. Returns the number of slots at the limit.
    pub(super) fn beat(&mut self, now: Instant) -> u64 {
        let mut overdue = 0;
        while let Some((hold, _)) = self.holds.first_key_value().filter(|(hold, _)| hold.0 <= now) {
            overdue += self.release(*hold, now);
        }
        let joins = self.counters.iter_mut().filter_map(|(counter, slots)| {
            let joins = slots.joins_queue(now);
            joins.then(|| (slots.first_due(), counter))
        });
        let mut due: Vec<_> = joins.collect();
        due.sort_unstable_by_key(|(first, _)| *first);
        self.queue.extend(due.into_iter().map(|(_, counter)| counter.clone()));
        if self.counters.capacity() > 64 + 4 * self.counters.len() {
            self.counters.shrink_to(2 * self.counters.len());
            self.queue.shrink_to(2 * self.queue.len());
        }
        overdue
    }

    /// Also `None` while too many are in flight.
    pub(super) fn next(&mut self, now: Instant) -> Option<PendingSettlement> {
        while self.in_flight < MAX_IN_FLIGHT {
            let Entry::Occupied(mut entry) = self.counters.entry(self.queue.pop_front()?) else { continue };
            let (counter, slots) = (entry.key().clone(), entry.get_mut());
            slots.is_queued = false;
            let due = slots.cohorts.iter().position(|cohort| cohort.due <= now);
            let due = due.map(|index| slots.cohorts.remove(index));
            slots.renewing += due.filter(|cohort| cohort.is_held).map_or(0, |cohort| cohort.units);
            if slots.joins_queue(now) {
                self.queue.push_back(counter.clone());
            } else if slots.cohorts.is_empty() && slots.renewing == 0 {
                entry.remove();
            }
            if let Some(cohort) = due {
                self.in_flight += 1;
                return Some(PendingSettlement { counter, cohort, sent: now });
            }
        }
        None
    }

    pub(super) fn done(&mut self, settlement: &PendingSettlement, result: Settled, now: Instant) -> u64 {
        self.in_flight -= 1;
        let PendingSettlement { ref counter, mut cohort, sent } = *settlement;
        let (life, mut lost) = (counter.1.quota().window(), 0);
        // Even with a rounded clock of the store, slots have expired after that.
        let is_alive = cohort.is_held || now < cohort.since + life + life / 8 + 2 * HEARTBEAT;
        match result {
            // Not at once, because the store may refuse it again.
            Some(Err(error)) if is_alive && error.is_unsent() => cohort.due = now + HEARTBEAT / 10,
            _ if !cohort.is_held => return 0,
            Some(Ok(applied)) => {
                (cohort.since, cohort.due) = (sent, sent + renewed_after(life));
                if let Some(applied) = applied.first() {
                    cohort.stamp = applied.stamp;
                    lost = cohort.units.saturating_sub(applied.units);
                }
            }
            // Early enough for two more renewals, but not much earlier, because each may count the slots again.
            _ => cohort.due = now + (life / 4).max(HEARTBEAT),
        }
        let slots = self.counters.entry(counter.clone()).or_default();
        slots.add(cohort);
        if cohort.is_held {
            slots.renewing -= cohort.units;
            // The rest is owed of other renewals in flight.
            let owed = slots.owed.saturating_sub(slots.renewing);
            slots.owed -= owed;
            slots.release(owed, now);
        }
        if slots.joins_queue(now) {
            self.queue.push_back(counter.clone());
        }
        lost
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.counters.is_empty()
    }
}

/// A third of the TTL, or earlier if the next heartbeat could leave less than a third.
fn renewed_after(life: Duration) -> Duration {
    (life / 3).min((2 * life / 3).saturating_sub(HEARTBEAT))
}

impl CounterSlots {
    fn add(&mut self, cohort: SlotCohort) {
        let is_same = |other: &&mut SlotCohort| (other.is_held, other.stamp) == (cohort.is_held, cohort.stamp);
        match self.cohorts.iter_mut().find(is_same) {
            Some(same) => {
                (same.since, same.due) = (same.since.min(cohort.since), same.due.min(cohort.due));
                same.units += cohort.units;
            }
            None => self.cohorts.push(cohort),
        }
    }

    /// Releases the oldest slots first, which the store may have dropped: it then counts the others, as it should. Those
    /// whose renewal is in flight are the oldest.
    fn release(&mut self, mut units: u64, now: Instant) {
        let owed = units.min(self.renewing - self.owed);
        self.owed += owed;
        units -= owed;
        while units > 0
            && let Some(held) =
                self.cohorts.iter_mut().filter(|cohort| cohort.is_held).min_by_key(|cohort| cohort.stamp)
        {
            let released = SlotCohort { is_held: false, units: units.min(held.units), due: now, ..*held };
            units -= released.units;
            held.units -= released.units;
            self.cohorts.retain(|cohort| cohort.units > 0);
            self.add(released);
        }
    }

    /// The number orders cohorts that are due at one time.
    fn first_due(&self) -> Option<(Instant, u64)> {
        self.cohorts.iter().map(|cohort| (cohort.due, cohort.number)).min()
    }

    /// Marks the counter as queued if it has something to send. Returns `true` if it was not queued.
    fn joins_queue(&mut self, now: Instant) -> bool {
        let joins = !self.is_queued && self.cohorts.iter().any(|cohort| cohort.due <= now);
        self.is_queued |= joins;
        joins
    }
}
