//! A bounded part of the counters, behind one lock.

use std::borrow::Cow;

use hashbrown::HashTable;

use super::entry::{Entry, Rank};
use super::fingerprint::Fingerprint;
use crate::Quota;
use crate::algorithm::{self, Adjusted, Adjustment, State, Step};
use crate::store::{Check, Counter, Mode};

/// At least this many entries are kept before idle ones are looked for.
const SMALL: usize = 64;

/// When only active keys are left, one in this many is evicted at once, so that the search for
/// them is paid by as many inserts.
const EVICTED_SHARE: usize = 16;

#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    capacity: usize,
    /// The size at which idle entries are swept out.
    sweep_at: usize,
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { table: HashTable::new(), capacity, sweep_at: SMALL.min(capacity) }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The state kept for a counter.
    pub(super) fn state(&self, of: Fingerprint) -> Option<Cow<'_, State>> {
        self.table.find(of.hash, |entry| entry.is_of(of)).map(Entry::state)
    }

    /// Decides a request's only check, and keeps what follows from it.
    pub(super) fn decide(&mut self, of: Fingerprint, check: &Check, now_us: u64) -> Step {
        let Check { counter: Counter { quota, .. }, cost, floor, mode, .. } = check;
        let now = quota.tick().of(now_us);
        let found = self.find(of);
        let kept = found.as_ref().map(|entry| entry.state());
        let mut step = algorithm::decide(quota, kept.as_deref(), now, *cost, *floor);
        if !step.fits {
            if let Some(entry) = found
                && *mode == Mode::Enforce
            {
                entry.refused();
            }
        } else if *cost > 0
            && let Some(state) = step.state.take()
        {
            let rank = Rank::new(quota, now_us, step.reset, step.remaining == 0);
            match found {
                Some(entry) => entry.set(state, rank),
                None => self.insert(of, state, rank, now_us),
            }
        }
        step
    }

    /// Keeps the state that follows from an admitted step.
    pub(super) fn keep(&mut self, of: Fingerprint, quota: &Quota, step: &mut Step, now_us: u64) {
        if let Some(state) = step.state.take() {
            self.put(of, state, Rank::new(quota, now_us, step.reset, step.remaining == 0), now_us);
        }
    }

    /// Notes that a key was refused, so that it is evicted last.
    pub(super) fn refused(&mut self, of: Fingerprint) {
        if let Some(entry) = self.find(of) {
            entry.refused();
        }
    }

    /// Changes a counter after the fact. Returns how many units that changed, and a look after it.
    pub(super) fn adjust(
        &mut self,
        of: Fingerprint,
        quota: &Quota,
        floor: u64,
        now_us: u64,
        change: Adjustment,
    ) -> (u64, Step) {
        let now = quota.tick().of(now_us);
        let before = self.state(of);
        let Adjusted { units, state } = algorithm::adjust(quota, before.as_deref(), now, change);
        let after = state.as_ref().map(|(state, _)| state).or(before.as_deref());
        let step = algorithm::decide(quota, after, now, 0, floor);
        if let Some((state, reset)) = state {
            self.put(of, state, Rank::new(quota, now_us, reset, step.remaining == 0), now_us);
        }
        (units, step)
    }

    pub(super) fn remove(&mut self, of: Fingerprint) {
        if let Ok(entry) = self.table.find_entry(of.hash, |entry| entry.is_of(of)) {
            entry.remove();
        }
    }

    fn find(&mut self, of: Fingerprint) -> Option<&mut Entry> {
        self.table.find_mut(of.hash, |entry| entry.is_of(of))
    }

    fn put(&mut self, of: Fingerprint, state: State, rank: Rank, now_us: u64) {
        match self.find(of) {
            Some(entry) => entry.set(state, rank),
            None => self.insert(of, state, rank, now_us),
        }
    }

    /// Keeps a counter that is not kept yet.
    fn insert(&mut self, of: Fingerprint, state: State, rank: Rank, now_us: u64) {
        if self.table.len() >= self.sweep_at {
            self.make_room(now_us);
        }
        let entry = Entry::new(of, state, rank);
        self.table.insert_unique(of.hash, entry, |entry| entry.hash);
    }

    /// Drops what is idle; if that is not enough, active keys, and throttled ones only if there is
    /// nothing else.
    fn make_room(&mut self, now_us: u64) {
        self.table.retain(|entry| entry.rank().idle_at() > now_us);
        let share = (self.capacity / EVICTED_SHARE).max(1);
        if self.table.len() + share > self.capacity {
            // A sweep that freed little must not be followed by one for each insert, so some active
            // keys make way too; throttled ones only for want of room.
            let throttled = self.table.iter().all(|entry| entry.rank().throttled());
            if !throttled || self.table.len() >= self.capacity {
                self.evict_soonest_idle(throttled, share);
            }
        }
        self.sweep_at = (2 * self.table.len()).clamp(SMALL.min(self.capacity), self.capacity);
    }

    fn evict_soonest_idle(&mut self, throttled: bool, share: usize) {
        let of_class = self.table.iter().filter(|entry| entry.rank().throttled() == throttled);
        let mut times: Vec<u64> = of_class.map(|entry| entry.rank().idle_at()).collect();
        let mut evicted = share.min(times.len());
        let (_, &mut last, _) = times.select_nth_unstable(evicted - 1);
        self.table.retain(|entry| {
            let evict = evicted > 0 && entry.rank().throttled() == throttled && entry.rank().idle_at() <= last;
            evicted -= usize::from(evict);
            !evict
        });
    }
}
