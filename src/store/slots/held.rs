//! The book of what this process holds, and of what is to be sent about it. It has no store and no clock.
//!
//! Slots of a counter with the same stamp expire together, so they are one *lot*, whoever holds them: a counter has as
//! many lots as its state has cohorts, however many slots. A *ticket* says how many slots of a counter one check of a
//! request holds, and until when at most; which lot they are of does not matter.
//!
//! What is sent is a release, or a renewal, of one lot:
//!
//! | sent | result | then |
//! | --- | --- | --- |
//! | release | made, or perhaps made | done: sent twice, it could release the slots of others |
//! | release | certainly not sent | it is sent with a later beat, unless the slots have expired by then |
//! | renewal | made | the lot has the new stamp |
//! | renewal | certainly not sent | it is sent with the next beat |
//! | renewal | perhaps made | it is sent by the same stamp a while later |
//!
//! A second renewal by one stamp never makes a store count too little: what it moves of others are as many slots as the
//! first one has left behind, until the others renew theirs. They count twice until then, at most for a life.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use ahash::RandomState;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::core::algorithm::HEARTBEAT;
use crate::store::{Applied, Change, Counter, Receipt, Settlement, StoreId, Taken};

/// The most settlements of one keeper in flight; beyond that they wait, those of a lot as one.
const MOST_IN_FLIGHT: usize = 1_024;

/// A counter, and the store that has it.
pub(super) type CounterRef = (StoreId, Counter);

/// The identity of a ticket: when its slots are released at the latest, and its number.
pub(super) type HoldId = (Instant, u64);

/// All that is held. It grows and shrinks with the slots.
#[derive(Debug, Default)]
pub(super) struct HeldSlots {
    counters: HashMap<CounterRef, Lines, RandomState>,
    tickets: BTreeMap<HoldId, (CounterRef, u64)>,
    /// The counters with something to send, each once.
    queue: VecDeque<CounterRef>,
    in_flight: usize,
    /// Counts up when settlements in flight are given up, so that their late results are not subtracted.
    round: u32,
    /// Whether a result came since the last beat.
    moves: bool,
    /// The last number of a ticket or lot.
    last: u64,
    /// Slots that tickets have.
    held: u64,
}

/// What is held of one counter.
#[derive(Debug, Default)]
struct Lines {
    lots: SmallVec<[SlotCohort; 1]>,
    /// Whether the counter is in the queue.
    is_queued: bool,
}

/// Slots of one counter with the same stamp: at least one, unless a renewal is in flight.
#[derive(Clone, Copy, Debug)]
struct SlotCohort {
    number: u64,
    stamp: u64,
    /// When the first of them was taken, or last renewed.
    since: Instant,
    /// When they are to be renewed; of those that are being renewed, when the result is given up.
    due: Instant,
    /// Slots that tickets have.
    held: u64,
    /// Slots that no ticket has any more, and whose release is to be sent.
    released: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Something may be sent.
    Open,
    /// A renewal is in flight: nothing is sent, as it changes the stamp.
    Renewing,
    /// The last settlement was not sent: it waits for the next beat.
    Waiting,
}

/// A settlement that is to be sent, or was.
#[derive(Clone, Debug)]
pub(super) struct PendingSettlement {
    place: CounterRef,
    what: What,
    stamp: u64,
    units: u64,
    round: u32,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A release of slots that were taken or renewed at this time.
    Release { since: Instant },
    /// A renewal of a lot, begun at this time.
    Renewal { lot: u64, at: Instant },
}

/// What is known of a settlement.
#[derive(Debug)]
pub(super) enum SendResult {
    /// It was made, with this result; `None` if the store returned none.
    Made(Option<Applied>),
    /// It was certainly not sent.
    Unsent,
    /// It may have been made.
    Lost,
}

impl PendingSettlement {
    /// Returns the settlement as stores receive it.
    pub(super) fn settlement(&self) -> (Receipt, [Settlement; 1]) {
        let change = match self.what {
            What::Release { .. } => Change::Refund(self.units),
            What::Renewal { .. } => Change::Renew(self.units),
        };
        let (store, counter) = &self.place;
        let taken = Taken::new(counter.clone(), self.units, self.stamp);
        (Receipt::new(*store, [taken]), [Settlement::new(0, change)])
    }
}

impl HeldSlots {
    /// Adds slots that were just taken, and returns their ticket.
    pub(super) fn hold(&mut self, store: StoreId, taken: &Taken, now: Instant) -> HoldId {
        let quota = taken.counter.quota();
        let (place, number) = ((store, taken.counter.clone()), self.number());
        let lot = SlotCohort {
            number,
            stamp: taken.stamp,
            since: now,
            due: now + quota.window() / 3,
            held: taken.units,
            released: 0,
            stage: Stage::Open,
        };
        let ticket = (now + quota.hold(), number);
        self.counters.entry(place.clone()).or_default().merge(lot);
        self.tickets.insert(ticket, (place, taken.units));
        self.held += taken.units;
        ticket
    }

    /// Releases the slots of a ticket, unless they were released before. Returns what is to be sent now, as the rest
    /// [waits](Self::next), and how many slots were released.
    pub(super) fn release(&mut self, ticket: HoldId) -> (SmallVec<[PendingSettlement; 1]>, u64) {
        let mut now = SmallVec::new();
        let Some((place, units)) = self.tickets.remove(&ticket) else { return (now, 0) };
        self.held -= units;
        let Some(lines) = self.counters.get_mut(&place) else { return (now, units) };
        lines.release(units);
        while self.in_flight < MOST_IN_FLIGHT
            && let Some(sent) = lines.send_release(&place, self.round)
        {
            self.in_flight += 1;
            now.push(sent);
        }
        self.settle_lines(&place, None);
        (now, units)
    }

    /// Releases what was held for too long, and lets all be sent that is due at a heartbeat. Returns how many slots
    /// were held for too long.
    pub(super) fn beat(&mut self, now: Instant) -> u64 {
        if !mem::take(&mut self.moves) && self.in_flight >= MOST_IN_FLIGHT {
            // The store does not reply.
            self.forget_flight();
        }
        let mut overdue = 0;
        while let Some(entry) = self.tickets.first_entry().filter(|ticket| ticket.key().0 <= now) {
            let (place, units) = entry.remove();
            self.held -= units;
            overdue += units;
            if let Some(lines) = self.counters.get_mut(&place) {
                lines.release(units);
            }
        }
        let (mut due, last) = (Vec::new(), &mut self.last);
        self.counters.retain(|place, lines| {
            lines.beat(now, last);
            if !lines.is_queued && lines.has_due(now) {
                lines.is_queued = true;
                due.push((lines.oldest(), place.clone()));
            }
            !lines.lots.is_empty()
        });
        due.sort_unstable_by_key(|(oldest, _)| *oldest);
        self.queue.extend(due.into_iter().map(|(_, place)| place));
        if self.counters.capacity() > 64 + 4 * self.counters.len() {
            self.counters.shrink_to(2 * self.counters.len());
            self.queue.shrink_to(2 * self.queue.len());
        }
        overdue
    }

    /// Has more be sent, though results of what was sent are missing.
    pub(super) fn forget_flight(&mut self) {
        (self.in_flight, self.round) = (0, self.round.wrapping_add(1));
    }

    /// Gives up the results of renewals that were sent a heartbeat ago or earlier, so that the next beat sends others.
    pub(super) fn give_up(&mut self, now: Instant) {
        for (place, lines) in &mut self.counters {
            let late =
                |lot: &&mut SlotCohort| lot.stage == Stage::Renewing && lot.due + HEARTBEAT <= now + patience(place);
            lines.lots.iter_mut().filter(late).for_each(|lot| lot.due = now);
        }
    }

    /// Returns what is to be sent next, of what had to wait.
    pub(super) fn next(&mut self, now: Instant) -> Option<PendingSettlement> {
        while self.in_flight < MOST_IN_FLIGHT {
            let place = self.queue.pop_front()?;
            let Some(lines) = self.counters.get_mut(&place) else { continue };
            lines.is_queued = false;
            let sent = lines.send_release(&place, self.round).or_else(|| lines.send_renewal(&place, self.round, now));
            self.settle_lines(&place, Some(now));
            if sent.is_some() {
                self.in_flight += 1;
                return sent;
            }
        }
        None
    }

    /// Applies the result of a settlement. Returns how many slots are held that the store had lost.
    pub(super) fn done(&mut self, sent: PendingSettlement, known: &SendResult, now: Instant) -> u64 {
        if sent.round == self.round {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        self.moves = true;
        match sent.what {
            What::Release { since } => self.released(sent, since, known, now),
            What::Renewal { lot, at } => return self.renewed(&sent, lot, at, known, now),
        }
        0
    }

    /// Has a release sent again that was certainly not sent, unless the slots have expired.
    fn released(&mut self, sent: PendingSettlement, since: Instant, known: &SendResult, now: Instant) {
        let PendingSettlement { place, stamp, units, .. } = sent;
        if matches!(known, SendResult::Unsent) && now < expiry(&place, since) {
            let (number, due) = (self.number(), since + place.1.quota().window());
            let lot = SlotCohort { number, stamp, since, due, held: 0, released: units, stage: Stage::Waiting };
            self.counters.entry(place).or_default().merge(lot);
        }
    }

    /// Applies the result of a renewal, begun `at`. Returns how many slots the store had lost.
    fn renewed(&mut self, sent: &PendingSettlement, number: u64, at: Instant, known: &SendResult, now: Instant) -> u64 {
        let Some(lines) = self.counters.get_mut(&sent.place) else { return 0 };
        let Some(index) = lines.lots.iter().position(|lot| lot.number == number) else { return 0 };
        let (mut lot, life) = (lines.lots.swap_remove(index), sent.place.1.quota().window());
        let mut gone = 0;
        lot.stage = Stage::Open;
        match known {
            SendResult::Made(applied) => {
                (lot.since, lot.due) = (at, at + life / 3);
                if let Some(applied) = applied {
                    lot.stamp = applied.stamp;
                    gone = sent.units.saturating_sub(applied.units);
                }
            }
            SendResult::Unsent => (lot.stage, lot.due) = (Stage::Waiting, now),
            SendResult::Lost => lot.due = now + retry(life),
        }
        lines.merge(lot);
        self.settle_lines(&sent.place, Some(now));
        gone
    }

    /// Returns whether anything is held, or to be sent, or in flight.
    pub(super) fn is_needed(&self) -> bool {
        !self.counters.is_empty() || self.in_flight > 0
    }

    /// Returns how many slots are held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Queues a counter that has something to send, by then at the latest, or forgets it if it has no slots.
    fn settle_lines(&mut self, place: &CounterRef, by: Option<Instant>) {
        let Some(lines) = self.counters.get_mut(place) else { return };
        lines.lots.retain(|lot| !lot.is_empty());
        let has_more = lines.lots.iter().any(|lot| lot.sends_release() || by.is_some_and(|by| lot.sends_renewal(by)));
        if lines.lots.is_empty() {
            self.counters.remove(place);
        } else if has_more && !lines.is_queued {
            lines.is_queued = true;
            self.queue.push_back(place.clone());
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

impl Lines {
    /// Adds a lot: to the one of its stamp, if nothing of that is in flight.
    fn merge(&mut self, lot: SlotCohort) {
        let same = |other: &&mut SlotCohort| other.stamp == lot.stamp && other.stage != Stage::Renewing;
        match self.lots.iter_mut().find(same) {
            Some(other) => {
                (other.since, other.due) = (other.since.min(lot.since), other.due.min(lot.due));
                (other.held, other.released) = (other.held + lot.held, other.released + lot.released);
                if lot.stage == Stage::Waiting {
                    other.stage = Stage::Waiting;
                }
            }
            None => self.lots.push(lot),
        }
    }

    /// Releases so many slots: the oldest first, and last those that are being renewed.
    fn release(&mut self, mut units: u64) {
        self.lots.sort_unstable_by_key(|lot| (lot.stage != Stage::Open, lot.since, lot.number));
        for lot in &mut self.lots {
            let back = units.min(lot.held);
            (lot.held, lot.released, units) = (lot.held - back, lot.released + back, units - back);
        }
    }

    /// Opens what waits for a beat, and what has waited too long for the result of a renewal: under another number, so
    /// that the result is ignored when it comes.
    fn beat(&mut self, now: Instant, last: &mut u64) {
        for lot in &mut self.lots {
            if lot.stage == Stage::Renewing && lot.due <= now {
                *last += 1;
                (lot.number, lot.stage) = (*last, Stage::Open);
            } else if lot.stage == Stage::Waiting {
                lot.stage = Stage::Open;
            }
        }
        self.lots.retain(|lot| !lot.is_empty());
    }

    /// Returns the number of the oldest lot: in their order counters are renewed.
    fn oldest(&self) -> Option<u64> {
        self.lots.iter().map(|lot| lot.number).min()
    }

    fn has_due(&self, now: Instant) -> bool {
        self.lots.iter().any(|lot| lot.sends_release() || lot.sends_renewal(now))
    }

    fn send_release(&mut self, place: &CounterRef, round: u32) -> Option<PendingSettlement> {
        let lot = self.lots.iter_mut().find(|lot| lot.sends_release())?;
        let (units, what) = (mem::take(&mut lot.released), What::Release { since: lot.since });
        Some(PendingSettlement { place: place.clone(), what, stamp: lot.stamp, units, round })
    }

    fn send_renewal(&mut self, place: &CounterRef, round: u32, now: Instant) -> Option<PendingSettlement> {
        let lot = self.lots.iter_mut().find(|lot| lot.sends_renewal(now))?;
        (lot.stage, lot.due) = (Stage::Renewing, now + patience(place));
        let what = What::Renewal { lot: lot.number, at: now };
        Some(PendingSettlement { place: place.clone(), what, stamp: lot.stamp, units: lot.held, round })
    }
}

impl SlotCohort {
    fn is_empty(&self) -> bool {
        self.held + self.released == 0 && self.stage != Stage::Renewing
    }

    fn sends_release(&self) -> bool {
        self.stage == Stage::Open && self.released > 0
    }

    fn sends_renewal(&self, now: Instant) -> bool {
        self.stage == Stage::Open && self.held > 0 && self.due <= now
    }
}

/// When slots that were taken or renewed at a time have expired, whatever their store's clock rounds.
fn expiry((_, counter): &CounterRef, since: Instant) -> Instant {
    let life = counter.quota().window();
    since + life + life / 8 + 2 * HEARTBEAT
}

/// How long the result of a renewal is waited for: longer than settlements wait for a connection, and mostly shorter
/// than slots live. A runtime that nobody drives any more would keep it for good.
fn patience((_, counter): &CounterRef) -> Duration {
    (counter.quota().window() / 2).max(Duration::from_secs(15))
}

/// How long after a renewal that was perhaps made there is another: soon enough for two of them, and not much sooner, as
/// slots count once more with each.
fn retry(life: Duration) -> Duration {
    (life / 4).max(HEARTBEAT)
}
