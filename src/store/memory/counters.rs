//! A bounded part of the counters, behind one lock.
//!
//! A fingerprint, a check and the time come in; the step that was decided goes out, and what follows from it is kept.
//! Methods that only refuse write a rank and no state; those that admit find the entry again in the same part, so no
//! lock is released between a decision and its effect. When a new key finds the part due for a sweep, idle keys are
//! dropped, and then, if that is not enough, active ones by [`Rank`].
//!
//! Invariant: the number of entries never exceeds the capacity of the part, and an eviction of active keys leaves at
//! least a 16th of it free, so that the search is not repeated for each insert.
//!
//! An entry is a fingerprint, a rank and a state, packed into 32 bytes. The fingerprint's tail has the highest 20 bits
//! of one word and the rank the 44 below, so that neither changes the other: each write of a rank keeps [`TAIL`] as it
//! is. Of two ranks the smaller one is evicted first. From the highest bit down a rank is:
//!
//! | bits | what | values |
//! | --- | --- | --- |
//! | 42 to 43 | class | 0: units are left, 1: used up, 2: the last request was refused |
//! | 35 to 41 | credit | requests since the key was last idle, at most 127 |
//! | 0 to 34 | `idle_at` | the time at which the key is idle, in steps of 2^18 µs |
//!
//! One comparison of integers orders all three. The times are rounded up to steps of 2^18 µs, so no key is dropped as idle
//! before it is. What the order promises to a key whose counter others try to have evicted is stated at
//! [`MemoryStore`](crate::MemoryStore).

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::core::Quota;
use crate::core::algorithm::{Adjusted, Adjustment, State, Step};
use crate::store::clock::{Clock, Times, micros};
use crate::store::map::{Fingerprint, MapEntry, TAIL, Table};
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

    pub(super) fn remove(&mut self, of: Fingerprint) -> bool {
        self.table.remove(of.hash, |kept| kept.is_of(of)).is_some()
    }

    /// Returns the entry of a fingerprint, after one probe of the table.
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

/// A counter in 32 bytes: two share a line of a processor's cache, and none lies across two lines.
#[derive(Debug)]
#[repr(align(32))]
struct PackedCounter {
    /// The fingerprint's hash, which finds the entry and picks its part.
    hash: u64,
    /// The fingerprint's tail in the bits of [`TAIL`], and the rank in the 44 bits below.
    rest: u64,
    /// The state, which is read as the algorithm of the fingerprint only: an algorithm is part of it.
    kept: Kept,
}

impl MapEntry for PackedCounter {
    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl PackedCounter {
    /// Packs what is kept of a key after its first admitted request.
    fn new(of: Fingerprint, state: State, rank: Rank) -> Self {
        Self { hash: of.hash, rest: of.tail | rank.bits, kept: Kept::new(state) }
    }

    /// Returns whether this is the entry of a fingerprint: all 84 bits are compared.
    #[inline]
    fn is_of(&self, fingerprint: Fingerprint) -> bool {
        self.hash == fingerprint.hash && self.rest & TAIL == fingerprint.tail
    }

    #[inline]
    fn state(&self) -> Cow<'_, State> {
        self.kept.state()
    }

    /// Keeps what follows from an admitted request, or from a change after the fact.
    ///
    /// `rank` is that of the state alone; the class and the credit the entry had before are [merged](Rank::after)
    /// into it, unless the key was idle at `now_us`.
    #[inline]
    fn set(&mut self, state: State, rank: Rank, now_us: u64) {
        self.kept.set(state);
        self.rest = self.rest & TAIL | rank.after(self.rank(), now_us).bits;
    }

    /// Notes that a request was refused: the entry is in the last class to be evicted, and has one credit more. The
    /// state stays as it is.
    fn refused(&mut self) {
        self.rest = self.rest & TAIL | self.rank().refused().bits;
    }

    fn delay(&mut self, by_us: u64) {
        self.rest = self.rest & TAIL | self.rank().delayed(by_us).bits;
    }

    /// Subtracts credit; the entry must have at least as much.
    fn lose(&mut self, credit: u64) {
        self.rest -= credit;
    }

    /// Returns the place of this entry in the order of eviction.
    fn rank(&self) -> Rank {
        Rank { bits: self.rest & !TAIL }
    }
}

/// The state of a counter, in 16 bytes; what needs more has an allocation of its own. Packing loses nothing.
///
/// Levels and windows, whose numbers are below 2^52, need no allocation, unless a window's counts have more than 32
/// bits. A time leaves its two lowest bits to the kind, and one kind is always set, so the word is never zero and the
/// enum needs no tag of its own.
#[derive(Debug)]
enum Kept {
    /// A level, or a window whose counts have 32 bits at most.
    Small {
        /// A time, below 2^62, and in the lowest bits one of [`LEVEL`] and [`WINDOW`].
        time: NonZeroU64,
        /// The amount of a level; of a window the count, and above it the previous one.
        amounts: u64,
    },
    /// Any state.
    Large(Box<State>),
}

/// The kind of a [`State::Level`], in the two lowest bits of a time.
const LEVEL: u64 = 1;
/// The kind of a [`State::Window`], in the two lowest bits of a time.
const WINDOW: u64 = 2;

/// The largest count that is kept in half of [`Kept::Small`]'s amounts.
const COUNT: u64 = (1 << 32) - 1;

impl Kept {
    fn new(state: State) -> Self {
        small(&state).unwrap_or_else(|| Kept::Large(Box::new(state)))
    }

    /// Replaces the state; an allocation that is there is used again where the new state needs one, too.
    #[inline]
    fn set(&mut self, state: State) {
        match (small(&state), &mut *self) {
            (Some(small), kept) => *kept = small,
            (None, Kept::Large(kept)) => **kept = state,
            (None, kept) => *kept = Kept::Large(Box::new(state)),
        }
    }

    #[inline]
    fn state(&self) -> Cow<'_, State> {
        match self {
            Kept::Small { time, amounts } => Cow::Owned(read(time.get(), *amounts)),
            Kept::Large(state) => Cow::Borrowed(state),
        }
    }
}

/// Packs a state; `None` for one that needs an allocation.
#[inline]
fn small(state: &State) -> Option<Kept> {
    let (time, kind, amounts) = match *state {
        State::Level { time, amount } => (time, LEVEL, amount),
        State::Window { time, count, previous } if count.max(previous) <= COUNT => {
            (time, WINDOW, previous << 32 | count)
        }
        _ => return None,
    };
    Some(Kept::Small { time: NonZeroU64::new(time << 2 | kind)?, amounts })
}

/// Unpacks the words of a [`Kept::Small`]: the inverse of [`small`].
#[inline]
fn read(time: u64, amounts: u64) -> State {
    if time & WINDOW == 0 {
        return State::Level { time: time >> 2, amount: amounts };
    }
    State::Window { time: time >> 2, count: amounts & COUNT, previous: amounts >> 32 }
}

/// A counter's place in the order of eviction, in which the lesser go first.
///
/// None of [`TAIL`], but from above: its class, its credit, and [`idle_at`](Self::idle_at) in steps of
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Class, credit and time as the [page](self) has them; none of [`TAIL`].
    bits: u64,
}

/// The logarithm of a step of times in microseconds: a step is about a quarter of a second.
const STEP_BITS: u32 = 18;

/// The bits of all times, which are microseconds below 2^53.
const IDLE_AT: u64 = ONE_CREDIT - 1;

/// The credit of one request: the lowest bit above the times.
const ONE_CREDIT: u64 = 1 << (53 - STEP_BITS);

/// The bits of all credits, which is also the largest.
const CREDITS: u64 = 127 * ONE_CREDIT;

/// The bits of a class.
const CLASSES: u64 = !TAIL & !CREDITS & !IDLE_AT;

impl Rank {
    /// The classes are those of keys that have units left, that have none, and that have none or not
    /// enough for the last request, which was refused.
    const CLASSES: usize = 3;

    /// The class of keys that have no unit left: the lowest bit above the credits.
    const USED_UP: u64 = CREDITS + ONE_CREDIT;
    /// The class of keys whose last requests were refused.
    const REFUSED: u64 = 2 * Self::USED_UP;

    /// Returns the rank of a key after its first request.
    ///
    /// `reset` is in ticks of the quota, from `now_us` until the untouched state admits a full limit. Times beyond what
    /// the bits hold are kept as the latest of them.
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

    /// The rank after a change that no request made.
    fn without_credit(self) -> Self {
        Self { bits: self.bits & !CREDITS }
    }

    /// A time in microseconds when untouched state admits a full limit, so that the counter is
    /// idle: the first such time that can be stored.
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

    /// How many requests there were since the key was last idle, less what was lost by the evictions of others, times
    /// [`ONE_CREDIT`].
    fn credit(self) -> u64 {
        self.bits & CREDITS
    }

    /// The rank of a key that had another one before, unless it was idle meanwhile. Who was refused stays
    /// so until a unit is left.
    #[inline]
    fn after(self, before: Self, now_us: u64) -> Self {
        if before.idle_at() <= now_us {
            return self;
        }
        let stays = self.bits & CLASSES == Self::USED_UP && before.bits >= Self::REFUSED;
        let class = if stays { Self::REFUSED } else { self.bits & CLASSES };
        Self { bits: class | before.credited(self.bits & CREDITS) | self.bits & IDLE_AT }
    }

    /// The rank after one more request, which was refused.
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
