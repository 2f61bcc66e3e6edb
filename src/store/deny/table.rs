//! The refusals that are remembered: a bounded number, behind a lock each part.

use std::sync::Arc;
use std::time::Duration;

use super::demand::Demand;
use crate::core::Outcome;
use crate::store::Check;
use crate::store::map::{Entry, Fingerprint, Shards, Table};

/// Several parts are made only if each has room for so many refusals.
const REFUSALS_PER_PART: usize = 1_024;

/// Refusals by counter, quota and kind of demand. All take the same room: of a counter it is not the
/// text that is kept, which clients may choose and make long.
#[derive(Debug)]
pub(super) struct KnownRefusals {
    shards: Shards<Part>,
    /// How long a full part is not searched for room again, in microseconds.
    pause_us: u64,
}

/// What is known of a counter since it refused. Times are microseconds of this process's clock.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The demand that was refused.
    pub(super) units: u64,
    /// The floor of the check that was refused.
    pub(super) floor: u64,
    pub(super) remaining: u64,
    /// When the store was called.
    pub(super) sent: u64,
    /// Until when this may be returned.
    pub(super) until: u64,
    /// When the demand fits again, counted from the answer: never early.
    pub(super) retry_at: u64,
    pub(super) reset_at: u64,
    /// How often the counter had been forgotten when the store was called.
    pub(super) generation: u64,
    /// What the refusal said of the other checks of the request.
    pub(super) others: Option<Arc<[Other]>>,
}

/// What was last known of a check that did not refuse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    /// Of counter, quota and kind of demand, as in [`Place`].
    pub(super) hash: u64,
    /// What was left of it then.
    pub(super) remaining: u64,
    /// When the counter resets, counted from the answer.
    pub(super) reset_at: u64,
}

/// The refusals of one part of the map.
#[derive(Debug)]
struct Part {
    /// Swept when it has doubled, and when it is full at most once in a pause.
    table: Table<Refusal>,
    /// When it is searched for room again, if it is full.
    search_at: u64,
}

/// An entry: a refusal, and what it is found by.
#[derive(Debug)]
struct Refusal {
    place: Place,
    known: Known,
}

/// What a refusal is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of counter, quota and kind of demand, with random keys of this process.
    pub(super) hash: u64,
    /// Of the counter: nobody outside can choose two that meet.
    pub(super) counter: Fingerprint,
}

impl Known {
    /// Returns what a refusal says whose call was made at `sent` and returned `now`, for up to `cap_us`.
    pub(super) fn new(check: &Check, outcome: &Outcome, generation: u64, sent: u64, now: u64, cap_us: u64) -> Self {
        let wait = outcome.retry_after();
        // A tick that had begun when the store was called is over before a whole one has passed.
        let begun = check.counter.quota.tick().micros() - 1;
        let surely = wait.map_or(u64::MAX, |wait| after(sent, wait).saturating_sub(begun));
        Self {
            units: Demand::of(check).units,
            floor: check.floor,
            remaining: outcome.remaining(),
            sent,
            until: surely.min(sent.saturating_add(cap_us)),
            retry_at: wait.map_or(u64::MAX, |wait| after(now, wait)),
            reset_at: after(now, outcome.reset_after()),
            generation,
            others: None,
        }
    }

    /// Returns whether the refusal may be served at `now`: it has not ended, and its counter is of the same generation.
    /// A clock that stepped back ends what was known after it.
    pub(super) fn is_live(&self, now: u64, generation: u64) -> bool {
        self.sent <= now && now < self.until && self.generation == generation
    }
}

impl KnownRefusals {
    /// Up to `capacity` refusals, none of which lives longer than `cap_us`.
    pub(super) fn new(capacity: usize, cap_us: u64) -> Self {
        let part = |room| Part { table: Table::new(room), search_at: 0 };
        Self { shards: Shards::new(capacity, REFUSALS_PER_PART, part), pause_us: cap_us / 8 }
    }

    /// How many refusals are kept, outlived ones that were not yet dropped included.
    pub(super) fn len(&self) -> usize {
        self.shards.each().map(|part| part.table.len()).sum()
    }

    /// What is known of a demand, or of a smaller one of its kind.
    ///
    /// Returned is also what is no longer live; the caller checks that.
    pub(super) fn find(&self, place: Place, demand: Demand) -> Option<Known> {
        let part = self.shards.lock(place.hash);
        let refusal = part.table.find(place.hash, |refusal| refusal.place == place)?;
        (refusal.known.units <= demand.units).then(|| refusal.known.clone())
    }

    /// Remembers a refusal, if there is room, and if nothing that says more is known at `now`.
    pub(super) fn put(&self, place: Place, known: Known, now: u64) {
        let mut part = self.shards.lock(place.hash);
        if let Some(refusal) = part.table.find_mut(place.hash, |refusal| refusal.place == place) {
            let old = &refusal.known;
            let says_more = (old.units, known.until) < (known.units, old.until);
            if !(old.is_live(now, known.generation) && says_more) {
                refusal.known = known;
            }
        } else if part.has_room(now, self.pause_us) {
            part.table.insert(Refusal { place, known });
        }
    }
}

impl Part {
    /// Whether one more fits. What is live makes no room, so that made-up keys push out nobody else's:
    /// those that find none are asked of the store.
    fn has_room(&mut self, now: u64, pause_us: u64) -> bool {
        if !self.table.is_due() {
            return true;
        }
        if self.table.is_full() && now < self.search_at {
            return false;
        }
        self.table.sweep(|refusal| now < refusal.known.until);
        self.search_at = now.saturating_add(pause_us);
        !self.table.is_full()
    }
}

impl Entry for Refusal {
    fn hash(&self) -> u64 {
        self.place.hash
    }
}

/// A time so much later, in microseconds.
pub(super) fn after(now: u64, wait: Duration) -> u64 {
    now.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))
}
