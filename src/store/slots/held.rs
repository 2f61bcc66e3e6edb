//! What this process holds, and what is to be sent about it: no store, and no runtime.
//!
//! Slots of a counter with the same stamp expire together, so they are one *cohort*, whoever holds them: a counter has
//! as many as its state has, however many slots. A *hold* is how many slots of a counter one check of a request has, and
//! until when at most; which cohort they are of does not matter.
//!
//! What is sent is a release, or a renewal, of one cohort:
//!
//! | sent | result | then |
//! | --- | --- | --- |
//! | release | made, or perhaps made | done: sent twice, it could release the slots of others |
//! | release | certainly not sent | it is sent with a later heartbeat, unless the slots have expired by then |
//! | renewal | made | the slots have the new stamp |
//! | renewal | certainly not sent | it is sent with the next heartbeat |
//! | renewal | perhaps made | it is sent by the same stamp a while later |
//!
//! A second renewal by one stamp never makes a store count too little: what it moves of others are as many slots as the
//! first one has left behind, until the others renew theirs. They count twice until then, at most for a life.

#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::core::Error;
use crate::core::algorithm::HEARTBEAT;
use crate::store::{Change, ChangeResult, Counter, Receipt, ReceiptItem, Settlement, StoreId};

/// The most settlements in flight; beyond that they wait, the releases of a cohort as one.
const MAX_IN_FLIGHT: usize = 1_024;

/// A counter, and the store that has it.
type CounterRef = (StoreId, Counter);

/// When the slots of a hold are released at the latest, and its number.
pub(super) type HoldId = (Instant, u64);

/// The result of a settlement; `None` if it is lost.
pub(super) type Settled = Option<Result<Vec<ChangeResult>, Error>>;

/// All that is held. It grows and shrinks with the slots.
#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    counters: HashMap<CounterRef, CounterSlots>,
    holds: BTreeMap<HoldId, (CounterRef, u64)>,
    /// The counters with something to send, each once.
    queue: VecDeque<CounterRef>,
    in_flight: usize,
    last_hold: u64,
}

/// The slots of one counter, but those of settlements in flight.
#[derive(Debug, Default)]
struct CounterSlots {
    cohorts: SmallVec<[SlotCohort; 1]>,
    /// How many are to be released of those whose renewal is in flight, as it changes their stamp.
    owed: u64,
    is_queued: bool,
}

/// Slots of one counter with the same stamp, that are held, or are to be released.
#[derive(Clone, Copy, Debug)]
struct SlotCohort {
    is_held: bool,
    units: u64,
    stamp: u64,
    /// When the first of them was taken, or last renewed.
    since: Instant,
    /// When they are to be renewed, or their release is to be sent.
    due: Instant,
    /// The number of the hold that took the first of them.
    number: u64,
}

/// A release or a renewal, on its way to the store.
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

    /// Releases the slots of a hold, unless they were released before. Returns how many.
    pub(super) fn release(&mut self, hold: HoldId, now: Instant) -> u64 {
        let Some((counter, units)) = self.holds.remove(&hold) else { return 0 };
        let slots = self.counters.entry(counter.clone()).or_default();
        slots.release(units, now);
        if slots.joins_queue(now) {
            self.queue.push_back(counter);
        }
        units
    }

    /// Releases what was held for too long, and queues all that is due, first what was due first. Returns how many slots were
    /// held for too long.
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

    /// Returns what is to be sent next; `None` also while too much is in flight.
    pub(super) fn next(&mut self, now: Instant) -> Option<PendingSettlement> {
        while self.in_flight < MAX_IN_FLIGHT {
            let Entry::Occupied(mut entry) = self.counters.entry(self.queue.pop_front()?) else { continue };
            let (counter, slots) = (entry.key().clone(), entry.get_mut());
            slots.is_queued = false;
            let due = slots.cohorts.iter().position(|cohort| cohort.due <= now);
            let due = due.map(|index| slots.cohorts.remove(index));
            if slots.joins_queue(now) {
                self.queue.push_back(counter.clone());
            } else if slots.cohorts.is_empty() && slots.owed == 0 {
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
        // Whatever the store's clock rounds, slots have expired after that.
        let is_alive = cohort.is_held || now < cohort.since + life + life / 8 + 2 * HEARTBEAT;
        match result {
            // With the next heartbeat, and not at once: the store may refuse it again.
            Some(Err(error)) if is_alive && error.is_unsent() => cohort.due = now + HEARTBEAT / 10,
            _ if !cohort.is_held => return 0,
            Some(Ok(applied)) => {
                (cohort.since, cohort.due) = (sent, sent + renewed_after(life));
                if let Some(applied) = applied.first() {
                    cohort.stamp = applied.stamp;
                    lost = cohort.units.saturating_sub(applied.units);
                }
            }
            // Soon enough for two more, and not much sooner, as slots count once more with each.
            _ => cohort.due = now + (life / 4).max(HEARTBEAT),
        }
        let slots = self.counters.entry(counter.clone()).or_default();
        slots.add(cohort);
        let owed = mem::take(&mut slots.owed);
        slots.release(owed, now);
        if slots.joins_queue(now) {
            self.queue.push_back(counter.clone());
        }
        lost
    }

    /// Returns whether nothing is held, and nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty() && self.counters.is_empty()
    }
}

/// Returns after which time slots are renewed, at the next heartbeat: a third of their life, and sooner if that heartbeat
/// could leave less than a third.
fn renewed_after(life: Duration) -> Duration {
    (life / 3).min((2 * life / 3).saturating_sub(HEARTBEAT))
}

impl CounterSlots {
    /// Adds a cohort, or its slots to that of the same stamp.
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

    /// Releases so many slots, last those that are being renewed.
    fn release(&mut self, mut units: u64, now: Instant) {
        while units > 0
            && let Some(index) = self.cohorts.iter().position(|cohort| cohort.is_held)
        {
            let held = &mut self.cohorts[index];
            let released = SlotCohort { is_held: false, units: units.min(held.units), due: now, ..*held };
            units -= released.units;
            held.units -= released.units;
            if held.units == 0 {
                self.cohorts.remove(index);
            }
            self.add(released);
        }
        self.owed += units;
    }

    /// Returns when the first cohort is due, and its number, as several are due at one time.
    fn first_due(&self) -> Option<(Instant, u64)> {
        self.cohorts.iter().map(|cohort| (cohort.due, cohort.number)).min()
    }

    /// Returns whether the counter has something to send and is not queued; from now on it is.
    fn joins_queue(&mut self, now: Instant) -> bool {
        let joins = !self.is_queued && self.cohorts.iter().any(|cohort| cohort.due <= now);
        self.is_queued |= joins;
        joins
    }
}
