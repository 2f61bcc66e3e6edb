//! A bounded part of the counters, behind one lock.
//!
//! A fingerprint, a check and the time come in; the step that was decided goes out, and what follows from it is kept.
//! Methods that only refuse write a rank and no state; those that admit find the entry again in the same part, so no
//! lock is released between a decision and its effect. When a new key finds the part due for a sweep, idle keys are
//! dropped, and then, if that is not enough, active ones by [`Rank`].
//!
//! Invariant: the number of entries never exceeds the capacity of the part, and an eviction of active keys leaves at
//! least a 16th of it free, so that the search is not repeated for each insert.

use std::borrow::Cow;
use std::sync::Arc;

use super::counter::{PackedCounter, Rank};
use crate::core::Quota;
use crate::core::algorithm::{Adjusted, Adjustment, State, Step};
use crate::store::clock::{Clock, Times, micros};
use crate::store::map::{Fingerprint, Table};
use crate::store::{Check, Mode};

/// When only active keys are left, one in this many is evicted at once, so that the search for
/// them is amortised over as many inserts.
const EVICTED_SHARE: usize = 16;

/// How many quarters of what stays then are each class's own: others do not push it out of them.
const OWN_QUARTERS: [usize; Rank::CLASSES] = [1, 1, 2];

/// The longest time by which a wall clock is followed that was set back, in microseconds: a day.
const MAX_SET_BACK: i64 = 86_400_000_000;

/// Counters by their fingerprints.
pub(super) struct Counters {
    /// The entries, by the fingerprint's hash.
    table: Table<PackedCounter>,
    clock: Arc<dyn Clock>,
    /// How far the wall clock was ahead of the other at most since the last sweep, in microseconds, where a window that is
    /// aligned to it was counted.
    ahead: Option<i64>,
}

impl Counters {
    /// Returns an empty part for up to `capacity` keys; memory is allocated as they come.
    pub(super) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        Self { table: Table::new(capacity), clock, ahead: None }
    }

    /// Returns how many keys are kept, idle ones that were not yet swept included.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the state kept for a counter; `None` where a key is new or was evicted, which decides as an unused one.
    #[inline]
    pub(super) fn state(&self, of: Fingerprint) -> Option<Cow<'_, State>> {
        self.table.find(of.hash, |kept| kept.is_of(of)).map(PackedCounter::state)
    }

    /// Decides a request's only check, and keeps what follows from it.
    ///
    /// Admitted with a cost, the state is replaced; admitted as a look (cost 0), nothing is written; refused, the key's
    /// rank is raised, but not by a check in shadow mode, which refuses no request.
    #[inline]
    pub(super) fn decide(&mut self, of: Fingerprint, check: &Check, times: Times) -> Step {
        let Check { ref counter, cost, floor, mode, .. } = *check;
        let quota = counter.quota();
        let found = self.find(of);
        let kept = found.as_ref().map(|entry| entry.state());
        let mut step = quota.decide(kept.as_deref(), times.ticks(quota), cost, floor);
        if !step.fits {
            if let Some(entry) = found
                && mode == Mode::Enforce
            {
                entry.refused();
            }
        } else if cost > 0
            && let Some(state) = step.state.take()
        {
            let rank = Rank::new(quota, times.now, step.reset, step.remaining == 0);
            match found {
                Some(entry) => entry.set(state, rank, times.now),
                None => self.insert(of, state, rank, times.now),
            }
            self.note(quota, times);
        }
        step
    }

    /// Keeps the state that follows from an admitted step, or from a strike.
    ///
    /// The step must have been admitted with a cost. A step without a state leaves the entry as it is.
    pub(super) fn keep(&mut self, of: Fingerprint, quota: &Quota, step: &mut Step, times: Times) {
        let Some(state) = step.state.take() else { return };
        let rank = Rank::new(quota, times.now, step.reset, step.remaining == 0);
        self.note(quota, times);
        match self.find(of) {
            Some(entry) => entry.set(state, rank, times.now),
            None => self.insert(of, state, rank, times.now),
        }
    }

    /// Notes that a key was refused, so that it is evicted late.
    ///
    /// A key without an entry stays without: a refusal allocates nothing but its strikes.
    pub(super) fn refused(&mut self, of: Fingerprint) {
        if let Some(entry) = self.find(of) {
            entry.refused();
        }
    }

    /// Changes a counter after the fact. Returns how many units that changed, and a look after it.
    ///
    /// The look has the `floor` of the check that took the units. An adjustment is no request, so it earns no credit;
    /// it may add an entry, as a charge to a key that was evicted must count.
    pub(super) fn adjust(
        &mut self,
        of: Fingerprint,
        quota: &Quota,
        floor: u64,
        times: Times,
        change: Adjustment,
    ) -> (u64, Step) {
        let now = times.ticks(quota);
        let before = self.state(of);
        let Adjusted { units, state } = quota.adjust(before.as_deref(), now, change);
        let after = state.as_ref().map(|(state, _)| state).or(before.as_deref());
        let step = quota.decide(after, now, 0, floor);
        if let Some((state, reset)) = state {
            let rank = Rank::new(quota, times.now, reset, step.remaining == 0);
            self.note(quota, times);
            match self.find(of) {
                Some(entry) => entry.set(state, rank.without_credit(), times.now),
                None => self.insert(of, state, rank, times.now),
            }
        }
        (units, step)
    }

    /// Forgets a counter, which then counts from nothing; returns whether there was one.
    pub(super) fn remove(&mut self, of: Fingerprint) -> bool {
        self.table.remove(of.hash, |kept| kept.is_of(of)).is_some()
    }

    /// Returns the entry of a fingerprint, after one probe of the table.
    fn find(&mut self, of: Fingerprint) -> Option<&mut PackedCounter> {
        self.table.find_mut(of.hash, |kept| kept.is_of(of))
    }

    /// Notes the clocks by which a window is kept.
    #[inline]
    fn note(&mut self, quota: &Quota, times: Times) {
        if quota.is_aligned() {
            self.ahead = self.ahead.max(Some(times.ahead()));
        }
    }

    /// Has all counters idle as much later as the wall clock was set back, as their windows end later then.
    fn follow_wall(&mut self, now_us: u64) {
        let Some(before) = self.ahead else { return };
        let ahead = micros(self.clock.wall()).cast_signed() - now_us.cast_signed();
        let set_back = (before - ahead).clamp(0, MAX_SET_BACK).cast_unsigned();
        if set_back > 0 {
            self.table.iter_mut().for_each(|counter| counter.delay(set_back));
        }
        self.ahead = Some(ahead);
    }

    /// Keeps a counter that is not kept yet, after making room for it where the part is due for a sweep.
    fn insert(&mut self, of: Fingerprint, state: State, rank: Rank, now_us: u64) {
        if self.table.is_due() {
            self.make_room(now_us);
        }
        self.table.insert(PackedCounter::new(of, state, rank));
    }

    /// Drops what is idle; if that is not enough, active keys, as [`evict`](Self::evict) chooses them.
    ///
    /// Afterwards at least one place is free.
    fn make_room(&mut self, now_us: u64) {
        self.follow_wall(now_us);
        self.table.sweep(|kept| kept.rank().idle_at() > now_us);
        // A sweep that freed little must not be followed by one for each insert.
        let capacity = self.table.capacity();
        let stay = capacity - (capacity / EVICTED_SHARE).max(1);
        if self.table.len() > stay {
            self.evict(stay);
        }
    }

    /// Evicts active keys until `stay` of them are left, of the lowest class that has more than its own.
    ///
    /// The classes' own parts of `stay` are [`OWN_QUARTERS`]: they sum to no more than all of it, so the surplus is
    /// always found in some classes.
    fn evict(&mut self, stay: usize) {
        let mut kept = [0_usize; Rank::CLASSES];
        self.table.iter().for_each(|counter| kept[counter.rank().class()] += 1);
        let mut surplus = self.table.len() - stay;
        for (class, quarters) in OWN_QUARTERS.into_iter().enumerate() {
            let evicted = surplus.min(kept[class].saturating_sub(stay * quarters / 4));
            self.evict_of(class, evicted);
            surplus -= evicted;
        }
    }

    /// Evicts so many keys of a class: those of the least credit, and of them those soonest idle. What the
    /// last of them had is taken from all that stay, so that no credit lasts longer than it should.
    fn evict_of(&mut self, class: usize, evicted: usize) {
        let Some(index) = evicted.checked_sub(1) else { return };
        let ranks = self.table.iter().map(PackedCounter::rank);
        let mut ranks: Vec<Rank> = ranks.filter(|rank| rank.class() == class).collect();
        let (lesser, &mut last, _) = ranks.select_nth_unstable(index);
        // More keys than are to go may have the last one's rank; of a lesser rank, which has less to lose, none stays.
        let mut of_last = evicted - lesser.iter().filter(|rank| **rank < last).count();
        self.table.retain(|counter| {
            let rank = counter.rank();
            if rank.class() != class {
                return true;
            }
            let evict = rank < last || rank == last && of_last > 0;
            of_last -= usize::from(evict && rank == last);
            if !evict {
                counter.lose(last.credit());
            }
            !evict
        });
    }
}
