//! A bounded shard of the counters, behind one lock.
//!
//! Denials write a rank and no state. A decision and its effect are made under one lock. When a new key finds the shard
//! due for a sweep, idle keys are dropped, and then, if that is not enough, active ones by [`Rank`].
//!
//! Invariant: the number of entries never exceeds the capacity of the shard, and an eviction of active keys leaves at
//! least a 16th of it free, so that the search is not repeated for each insert.
//!
//! An entry is a fingerprint, a rank and a state, packed into 32 bytes. The fingerprint's tail has the highest 20 bits
//! of one word and the rank the 44 below, so that neither changes the other: each write of a rank keeps [`TAIL`]
//! unchanged. Of two ranks the smaller one is evicted first. From the highest bit down a rank is:
//!
//! | bits | field | values |
//! | --- | --- | --- |
//! | 42 to 43 | class | 0: units are left, 1: used up, 2: the last request was denied |
//! | 35 to 41 | credit | requests since the key was last idle, at most 127 |
//! | 0 to 34 | `idle_at` | the time at which the key is idle, in steps of 2^18 µs |
//!
//! One comparison of integers orders all three. The times are rounded up to steps of 2^18 µs, so no key is dropped as
//! idle too early. [`MemoryStore`](crate::MemoryStore) documents the protection against clients who try to evict a key.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::core::Quota;
use crate::core::algorithm::{Adjusted, Adjustment, CounterState, Step};
use crate::store::clock::{Clock, Times, micros};
use crate::store::map::{Fingerprint, MapEntry, TAIL, Table};
use crate::store::{Check, Mode};

/// Share of active keys evicted at once, so that the search is amortised over as many inserts.
const EVICTED_SHARE: usize = 16;

/// Quarters of the remaining entries reserved for each class.
const OWN_QUARTERS: [usize; Rank::CLASSES] = [1, 1, 2];

/// Limit to which a wall clock that was set back is followed, in microseconds: a day.
const MAX_SET_BACK: i64 = 86_400_000_000;

pub(super) struct MemoryCounters {
    table: Table<PackedCounter>,
    clock: Arc<dyn Clock>,
    /// Maximum lead of the wall clock since the last sweep, in microseconds, where it counted an aligned window.
    ahead: Option<i64>,
}

impl MemoryCounters {
    pub(super) fn new(capacity: usize, clock: Arc<dyn Clock>) -> Self {
        Self { table: Table::new(capacity), clock, ahead: None }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// `None` for a new or evicted key, which decides like an unused one.
    #[inline]
    pub(super) fn state(&self, of: Fingerprint) -> Option<Cow<'_, CounterState>> {
        self.table.find(of.hash, |kept| kept.is_of(of)).map(PackedCounter::state)
    }

    /// Keeps the new state if the check is allowed with a cost. A denial raises the key's rank, except in shadow mode.
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

    pub(super) fn keep(&mut self, of: Fingerprint, quota: &Quota, step: &mut Step, times: Times) {
        let Some(state) = step.state.take() else { return };
        let rank = Rank::new(quota, times.now, step.reset, step.remaining == 0);
        self.note(quota, times);
        match self.find(of) {
            Some(entry) => entry.set(state, rank, times.now),
            None => self.insert(of, state, rank, times.now),
        }
    }

    pub(super) fn refused(&mut self, of: Fingerprint) {
        if let Some(entry) = self.find(of) {
            entry.refused();
        }
    }

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
                // An adjustment is no request and earns no credit.
                Some(entry) => entry.set(state, rank.without_credit(), times.now),
                // A charge to an evicted key must count.
                None => self.insert(of, state, rank, times.now),
            }
        }
        (units, step)
    }

    pub(super) fn remove(&mut self, of: Fingerprint) -> bool {
        self.table.remove(of.hash, |kept| kept.is_of(of)).is_some()
    }

    fn find(&mut self, of: Fingerprint) -> Option<&mut PackedCounter> {
        self.table.find_mut(of.hash, |kept| kept.is_of(of))
    }

    #[inline]
    fn note(&mut self, quota: &Quota, times: Times) {
        if quota.is_aligned() {
            self.ahead = self.ahead.max(Some(times.ahead()));
        }
    }

    fn follow_wall(&mut self, now_us: u64) {
        let Some(before) = self.ahead else { return };
        let ahead = micros(self.clock.wall()).cast_signed() - now_us.cast_signed();
        let set_back = (before - ahead).clamp(0, MAX_SET_BACK).cast_unsigned();
        if set_back > 0 {
            self.table.iter_mut().for_each(|counter| counter.delay(set_back));
        }
        self.ahead = Some(ahead);
    }

    fn insert(&mut self, of: Fingerprint, state: CounterState, rank: Rank, now_us: u64) {
        if self.table.is_due() {
            self.make_room(now_us);
        }
        self.table.insert(PackedCounter::new(of, state, rank));
    }

    /// Drops idle keys, then active ones. Afterwards at least one entry is free.
    fn make_room(&mut self, now_us: u64) {
        self.follow_wall(now_us);
        self.table.sweep(|kept| kept.rank().idle_at() > now_us);
        // Otherwise a sweep that frees little would be followed by one for each insert.
        let capacity = self.table.capacity();
        let stay = capacity - (capacity / EVICTED_SHARE).max(1);
        if self.table.len() > stay {
            self.evict(stay);
        }
    }

    fn evict(&mut self, stay: usize) {
        let mut kept = [0_usize; Rank::CLASSES];
        self.table.iter().for_each(|counter| kept[counter.rank().class()] += 1);
        // The reserves sum to no more than `stay`, so that this loop always finds the surplus.
        let mut surplus = self.table.len() - stay;
        for (class, quarters) in OWN_QUARTERS.into_iter().enumerate() {
            let evicted = surplus.min(kept[class].saturating_sub(stay * quarters / 4));
            self.evict_of(class, evicted);
            surplus -= evicted;
        }
    }

    /// Evicts keys of least credit first, then those soonest idle.
    fn evict_of(&mut self, class: usize, evicted: usize) {
        let Some(index) = evicted.checked_sub(1) else { return };
        let ranks = self.table.iter().map(PackedCounter::rank);
        let mut ranks: Vec<Rank> = ranks.filter(|rank| rank.class() == class).collect();
        // The credit of the last evicted key is taken from all others, so that no credit lasts longer than it should.
        let (lesser, &mut last, _) = ranks.select_nth_unstable(index);
        // More keys than needed may have the rank of `last`. All of a lesser rank are evicted.
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

/// A counter in 32 bytes, aligned so that it never crosses a cache line.
#[derive(Debug)]
#[repr(align(32))]
struct PackedCounter {
    hash: u64,
    /// The fingerprint's tail in the bits of [`TAIL`], and the rank in the 44 bits below.
    rest: u64,
    kept: Kept,
}

impl MapEntry for PackedCounter {
    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl PackedCounter {
    fn new(of: Fingerprint, state: CounterState, rank: Rank) -> Self {
        Self { hash: of.hash, rest: of.tail | rank.bits, kept: Kept::new(state) }
    }

    #[inline]
    fn is_of(&self, fingerprint: Fingerprint) -> bool {
        self.hash == fingerprint.hash && self.rest & TAIL == fingerprint.tail
    }

    #[inline]
    fn state(&self) -> Cow<'_, CounterState> {
        self.kept.state()
    }

    /// Merges the entry's class and credit into `rank`, unless the key was idle at `now_us`.
    #[inline]
    fn set(&mut self, state: CounterState, rank: Rank, now_us: u64) {
        self.kept.set(state);
        self.rest = self.rest & TAIL | rank.after(self.rank(), now_us).bits;
    }

    fn refused(&mut self) {
        self.rest = self.rest & TAIL | self.rank().refused().bits;
    }

    fn delay(&mut self, by_us: u64) {
        self.rest = self.rest & TAIL | self.rank().delayed(by_us).bits;
    }

    fn lose(&mut self, credit: u64) {
        self.rest -= credit;
    }

    fn rank(&self) -> Rank {
        Rank { bits: self.rest & !TAIL }
    }
}

/// 16 bytes, without loss. The time's two lowest bits hold the kind, never 0, so the enum needs no tag.
#[derive(Debug)]
enum Kept {
    Small {
        /// A time below 2^62, and [`LEVEL`] or [`WINDOW`] in the two lowest bits.
        time: NonZeroU64,
        /// The amount of a level, or a window's count below its previous count.
        amounts: u64,
    },
    Large(Box<CounterState>),
}

const LEVEL: u64 = 1;
const WINDOW: u64 = 2;

const COUNT: u64 = (1 << 32) - 1;

impl Kept {
    fn new(state: CounterState) -> Self {
        small(&state).unwrap_or_else(|| Kept::Large(Box::new(state)))
    }

    #[inline]
    fn set(&mut self, state: CounterState) {
        match (small(&state), &mut *self) {
            (Some(small), kept) => *kept = small,
            (None, Kept::Large(kept)) => **kept = state,
            (None, kept) => *kept = Kept::Large(Box::new(state)),
        }
    }

    #[inline]
    fn state(&self) -> Cow<'_, CounterState> {
        match self {
            Kept::Small { time, amounts } => Cow::Owned(read(time.get(), *amounts)),
            Kept::Large(state) => Cow::Borrowed(state),
        }
    }
}

#[inline]
fn small(state: &CounterState) -> Option<Kept> {
    let (time, kind, amounts) = match *state {
        CounterState::Level { time, amount } => (time, LEVEL, amount),
        CounterState::Window { time, count, previous } if count.max(previous) <= COUNT => {
            (time, WINDOW, previous << 32 | count)
        }
        _ => return None,
    };
    Some(Kept::Small { time: NonZeroU64::new(time << 2 | kind)?, amounts })
}

#[inline]
fn read(time: u64, amounts: u64) -> CounterState {
    if time & WINDOW == 0 {
        return CounterState::Level { time: time >> 2, amount: amounts };
    }
    CounterState::Window { time: time >> 2, count: amounts & COUNT, previous: amounts >> 32 }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Class, credit and time, as in the table of this [module](self). None of [`TAIL`].
    bits: u64,
}

/// Logarithm of the time step in microseconds, about a quarter of a second.
const STEP_BITS: u32 = 18;

/// Bits of the time, which is below 2^53 µs.
const IDLE_AT: u64 = ONE_CREDIT - 1;

/// The lowest bit above the time.
const ONE_CREDIT: u64 = 1 << (53 - STEP_BITS);

/// Bits of the credit, also its maximum.
const CREDITS: u64 = 127 * ONE_CREDIT;

const CLASSES: u64 = !TAIL & !CREDITS & !IDLE_AT;

impl Rank {
    const CLASSES: usize = 3;

    const USED_UP: u64 = CREDITS + ONE_CREDIT;
    const REFUSED: u64 = 2 * Self::USED_UP;

    /// `reset` is the time until the untouched state allows a full limit, in ticks. Later times than fit are cut.
    #[inline]
    fn new(quota: &Quota, now_us: u64, reset: u64, used_up: bool) -> Self {
        let idle_at = now_us.saturating_add(reset.saturating_mul(quota.tick().micros()));
        let steps = (idle_at >> STEP_BITS) + 1;
        let class = match used_up {
            _ if quota.is_ban() => Self::REFUSED,
            true => Self::USED_UP,
            false => 0,
        };
        Self { bits: steps.min(IDLE_AT) | ONE_CREDIT | class }
    }

    fn without_credit(self) -> Self {
        Self { bits: self.bits & !CREDITS }
    }

    /// In microseconds: the first time, as rounded, at which the untouched counter allows a full limit.
    fn idle_at(self) -> u64 {
        (self.bits & IDLE_AT) << STEP_BITS
    }

    fn delayed(self, by_us: u64) -> Self {
        let steps = (self.bits & IDLE_AT).saturating_add((by_us >> STEP_BITS) + 1);
        Self { bits: self.bits & !IDLE_AT | steps.min(IDLE_AT) }
    }

    fn class(self) -> usize {
        usize::from(self.bits >= Self::USED_UP) + usize::from(self.bits >= Self::REFUSED)
    }

    /// Requests since the key was last idle, less credit lost by evictions of others, times [`ONE_CREDIT`].
    fn credit(self) -> u64 {
        self.bits & CREDITS
    }

    /// Keeps the credit of `before` unless the key was idle. A denied key stays denied until a unit is left.
    #[inline]
    fn after(self, before: Self, now_us: u64) -> Self {
        if before.idle_at() <= now_us {
            return self;
        }
        let stays = self.bits & CLASSES == Self::USED_UP && before.bits >= Self::REFUSED;
        let class = if stays { Self::REFUSED } else { self.bits & CLASSES };
        Self { bits: class | before.credited(self.bits & CREDITS) | self.bits & IDLE_AT }
    }

    fn refused(self) -> Self {
        Self { bits: Self::REFUSED | self.credited(ONE_CREDIT) | self.bits & IDLE_AT }
    }

    #[inline]
    fn credited(self, more: u64) -> u64 {
        ((self.bits & CREDITS) + more).min(CREDITS)
    }
}

#[cfg(test)]
mod tests;
