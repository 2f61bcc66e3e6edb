//! A bounded part of the counters, behind one lock.

use hashbrown::HashTable;

use crate::algorithm::{self, Adjustment, State, Step};
use crate::quota::Algorithm;
use crate::store::{Check, Counter, Mode};
use crate::{Key, PolicyName, Quota};

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

#[derive(Debug)]
struct Entry {
    hash: u64,
    policy: PolicyName,
    key: Key,
    algorithm: Algorithm,
    window: u64,
    state: State,
    /// When untouched state admits a full limit, in microseconds: the entry says nothing then.
    idle_at: u64,
    /// The last request was refused, or no unit is left.
    throttled: bool,
}

impl Entry {
    fn is(&self, counter: &Counter) -> bool {
        self.key == counter.key
            && self.window == counter.quota.window_ticks()
            && self.algorithm == counter.quota.algorithm()
            && self.policy == counter.policy
    }
}

impl Entry {
    fn keep(&mut self, state: State, idle_at: u64, throttled: bool) {
        self.state = state;
        self.idle_at = idle_at;
        self.throttled = throttled;
    }
}

impl Shard {
    pub(super) fn new(capacity: usize) -> Self {
        Self { table: HashTable::new(), capacity, sweep_at: SMALL.min(capacity) }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The state kept for a counter.
    pub(super) fn state(&self, hash: u64, counter: &Counter) -> Option<&State> {
        self.table.find(hash, |entry| entry.is(counter)).map(|entry| &entry.state)
    }

    /// Decides a request's only check, and keeps what follows from it.
    pub(super) fn decide(&mut self, hash: u64, check: &Check, now_us: u64) -> Step {
        let Check { counter, cost, floor, mode, .. } = check;
        let now = now_us / counter.quota.tick().micros();
        let Some(entry) = self.table.find_mut(hash, |entry| entry.is(counter)) else {
            let mut step = algorithm::decide(&counter.quota, None, now, *cost, *floor);
            if step.fits && *cost > 0 {
                self.keep(hash, counter, &mut step, now_us);
            }
            return step;
        };
        let mut step = algorithm::decide(&counter.quota, Some(&entry.state), now, *cost, *floor);
        if !step.fits {
            entry.throttled |= *mode == Mode::Enforce;
        } else if *cost > 0
            && let Some(state) = step.state.take()
        {
            entry.keep(state, idle_at(&counter.quota, now_us, step.reset), step.remaining == 0);
        }
        step
    }

    /// Keeps the state that follows from an admitted step.
    pub(super) fn keep(&mut self, hash: u64, counter: &Counter, step: &mut Step, now_us: u64) {
        let idle_at = idle_at(&counter.quota, now_us, step.reset);
        if let Some(state) = step.state.take() {
            self.put(hash, counter, state, idle_at, step.remaining == 0, now_us);
        }
    }

    /// Notes that a key was refused, so that it is evicted last.
    pub(super) fn refused(&mut self, hash: u64, counter: &Counter) {
        if let Some(entry) = self.table.find_mut(hash, |entry| entry.is(counter)) {
            entry.throttled = true;
        }
    }

    /// Changes a counter after the fact.
    pub(super) fn adjust(&mut self, hash: u64, counter: &Counter, now_us: u64, change: Adjustment) {
        let now = now_us / counter.quota.tick().micros();
        let state = self.state(hash, counter);
        if let Some((state, reset)) = algorithm::adjust(&counter.quota, state, now, change) {
            let idle_at = idle_at(&counter.quota, now_us, reset);
            let throttled = algorithm::decide(&counter.quota, Some(&state), now, 0, 0).remaining == 0;
            self.put(hash, counter, state, idle_at, throttled, now_us);
        }
    }

    pub(super) fn remove(&mut self, hash: u64, counter: &Counter) {
        if let Ok(entry) = self.table.find_entry(hash, |entry| entry.is(counter)) {
            entry.remove();
        }
    }

    fn put(&mut self, hash: u64, counter: &Counter, state: State, idle_at: u64, throttled: bool, now_us: u64) {
        if let Some(entry) = self.table.find_mut(hash, |entry| entry.is(counter)) {
            return entry.keep(state, idle_at, throttled);
        }
        if self.table.len() >= self.sweep_at {
            self.make_room(now_us);
        }
        let Counter { policy, key, quota } = counter.clone();
        let (algorithm, window) = (quota.algorithm(), quota.window_ticks());
        let entry = Entry { hash, policy, key, algorithm, window, state, idle_at, throttled };
        self.table.insert_unique(hash, entry, |entry| entry.hash);
    }

    /// Drops what is idle; if that is not enough, active keys, and throttled ones only if there is
    /// nothing else.
    fn make_room(&mut self, now_us: u64) {
        self.table.retain(|entry| entry.idle_at > now_us);
        let share = (self.capacity / EVICTED_SHARE).max(1);
        if self.table.len() + share > self.capacity {
            // A sweep that freed little must not be followed by one for each insert, so some active
            // keys make way too; throttled ones only for want of room.
            let throttled = self.table.iter().all(|entry| entry.throttled);
            if !throttled || self.table.len() >= self.capacity {
                self.evict_soonest_idle(throttled, share);
            }
        }
        self.sweep_at = (2 * self.table.len()).clamp(SMALL.min(self.capacity), self.capacity);
    }

    fn evict_soonest_idle(&mut self, throttled: bool, share: usize) {
        let of_class = self.table.iter().filter(|entry| entry.throttled == throttled);
        let mut times: Vec<u64> = of_class.map(|entry| entry.idle_at).collect();
        let mut evicted = share.min(times.len());
        let (_, &mut last, _) = times.select_nth_unstable(evicted - 1);
        self.table.retain(|entry| {
            let evict = evicted > 0 && entry.throttled == throttled && entry.idle_at <= last;
            evicted -= usize::from(evict);
            !evict
        });
    }
}

fn idle_at(quota: &Quota, now_us: u64, reset: u64) -> u64 {
    now_us.saturating_add(reset.saturating_mul(quota.tick().micros()))
}
