//! One entry of the memory store: a fingerprint, a rank and a state, packed into 32 bytes.
//!
//! The fingerprint's tail has the highest 20 bits of one word and the rank the 44 below, so that neither changes the
//! other: each write of a rank keeps [`TAIL`] as it is. Of two ranks the smaller one is evicted first. From the highest bit
//! down a rank is:
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

use crate::core::Quota;
use crate::core::algorithm::State;
use crate::store::map::{Fingerprint, MapEntry, TAIL};

/// A counter in 32 bytes: two share a line of a processor's cache, and none lies across two lines.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct PackedCounter {
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
    pub(super) fn new(of: Fingerprint, state: State, rank: Rank) -> Self {
        Self { hash: of.hash, rest: of.tail | rank.bits, kept: Kept::new(state) }
    }

    /// Returns whether this is the entry of a fingerprint: all 84 bits are compared.
    #[inline]
    pub(super) fn is_of(&self, fingerprint: Fingerprint) -> bool {
        self.hash == fingerprint.hash && self.rest & TAIL == fingerprint.tail
    }

    /// Returns the state: owned where it was unpacked, without allocating; borrowed where it has an allocation.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        self.kept.state()
    }

    /// Keeps what follows from an admitted request, or from a change after the fact.
    ///
    /// `rank` is that of the state alone; the class and the credit the entry had before are [merged](Rank::after)
    /// into it, unless the key was idle at `now_us`.
    #[inline]
    pub(super) fn set(&mut self, state: State, rank: Rank, now_us: u64) {
        self.kept.set(state);
        self.rest = self.rest & TAIL | rank.after(self.rank(), now_us).bits;
    }

    /// Notes that a request was refused: the entry is in the last class to be evicted, and has one credit more. The
    /// state stays as it is.
    pub(super) fn refused(&mut self) {
        self.rest = self.rest & TAIL | self.rank().refused().bits;
    }

    /// Has the entry idle so many microseconds later.
    pub(super) fn delay(&mut self, by_us: u64) {
        self.rest = self.rest & TAIL | self.rank().delayed(by_us).bits;
    }

    /// Subtracts credit; the entry must have at least as much.
    pub(super) fn lose(&mut self, credit: u64) {
        self.rest -= credit;
    }

    /// Returns the place of this entry in the order of eviction.
    pub(super) fn rank(&self) -> Rank {
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
    /// Packs a state, or boxes one that cannot be packed.
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

    /// Returns the state as it was given.
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
pub(super) struct Rank {
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
    pub(super) const CLASSES: usize = 3;

    /// The class of keys that have no unit left: the lowest bit above the credits.
    const USED_UP: u64 = CREDITS + ONE_CREDIT;
    /// The class of keys whose last requests were refused.
    const REFUSED: u64 = 2 * Self::USED_UP;

    /// Returns the rank of a key after its first request.
    ///
    /// `reset` is in ticks of the quota, from `now_us` until the untouched state admits a full limit. Times beyond what
    /// the bits hold are kept as the latest of them.
    #[inline]
    pub(super) fn new(quota: &Quota, now_us: u64, reset: u64, used_up: bool) -> Self {
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
    pub(super) fn without_credit(self) -> Self {
        Self { bits: self.bits & !CREDITS }
    }

    /// A time in microseconds when untouched state admits a full limit, so that the counter is
    /// idle: the first such time that can be stored.
    pub(super) fn idle_at(self) -> u64 {
        (self.bits & IDLE_AT) << STEP_BITS
    }

    /// The rank of a key that is idle so many microseconds later, in whole steps.
    fn delayed(self, by_us: u64) -> Self {
        let steps = (self.bits & IDLE_AT).saturating_add((by_us >> STEP_BITS) + 1);
        Self { bits: self.bits & !IDLE_AT | steps.min(IDLE_AT) }
    }

    /// The number of its class.
    pub(super) fn class(self) -> usize {
        usize::from(self.bits >= Self::USED_UP) + usize::from(self.bits >= Self::REFUSED)
    }

    /// How many requests there were since the key was last idle, less what was lost by the evictions of others, times
    /// [`ONE_CREDIT`].
    pub(super) fn credit(self) -> u64 {
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

    /// The bits of its credit, with more.
    #[inline]
    fn credited(self, more: u64) -> u64 {
        ((self.bits & CREDITS) + more).min(CREDITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Key;
    use crate::store::Counter;
    use crate::store::map::Fingerprints;

    #[test]
    fn a_counter_takes_half_a_line_of_a_cache() {
        assert_eq!((size_of::<PackedCounter>(), align_of::<PackedCounter>()), (32, 32));
    }

    const HOURLY: Quota = Quota::per_hour(1);
    const STATE: State = State::Level { time: 1, amount: 2 };

    fn packed(rank: Rank) -> PackedCounter {
        let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), HOURLY);
        PackedCounter::new(Fingerprints::new().of(&counter), STATE, rank)
    }

    fn credit(packed: &PackedCounter) -> u64 {
        packed.rank().credit() / ONE_CREDIT
    }

    #[test]
    fn whoever_was_refused_stays_so_until_a_unit_is_left_or_it_is_idle() {
        let rank = |now_us, used_up| Rank::new(&HOURLY, now_us, 1_000, used_up);
        let mut packed = packed(rank(0, false));
        packed.refused();
        assert_eq!(packed.rank().class(), 2);
        packed.set(STATE, rank(1, true), 1);
        assert_eq!(packed.rank().class(), 2);
        packed.set(STATE, rank(2, false), 2);
        assert_eq!(packed.rank().class(), 0);
        packed.refused();
        let idle = packed.rank().idle_at();
        packed.set(STATE, rank(idle, true), idle);
        assert_eq!((packed.rank().class(), credit(&packed)), (1, 1));
    }

    #[test]
    fn each_request_is_a_credit_up_to_127_and_nothing_else_is() {
        let rank = Rank::new(&HOURLY, 0, 1_000, false);
        let mut packed = packed(rank);
        for requests in 2..200 {
            if requests % 2 == 0 {
                packed.refused();
            } else {
                packed.set(STATE, rank, 0);
            }
            packed.set(STATE, rank.without_credit(), 0);
            assert_eq!((credit(&packed), packed.rank().idle_at()), (requests.min(127), rank.idle_at()));
        }
        packed.lose(rank.credit());
        assert_eq!((credit(&packed), packed.rank().idle_at()), (126, rank.idle_at()));
    }

    #[test]
    fn a_counter_is_of_its_fingerprint_whatever_its_rank() {
        let counter =
            |key: u32| Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), HOURLY);
        let fingerprints = Fingerprints::new();
        for key in 0..200 {
            let of = fingerprints.of(&counter(key));
            let mut packed = PackedCounter::new(of, STATE, Rank::new(&HOURLY, 0, u64::MAX, false));
            assert!(packed.is_of(of) && packed.rank().class() == 0);
            (0..200).for_each(|_| packed.refused());
            assert!(packed.is_of(of) && packed.rank().class() == 2);
            packed.set(STATE, Rank::new(&HOURLY, 5_000, 0, false), 5_000);
            assert!(packed.is_of(of) && packed.rank().class() == 0);
            assert_eq!(packed.rank().idle_at(), 1 << STEP_BITS);
            for bit in 44..64 {
                assert!(!packed.is_of(Fingerprint { tail: of.tail ^ 1 << bit, ..of }));
            }
            assert!(!packed.is_of(Fingerprint { hash: of.hash ^ 1, ..of }));
        }
    }

    const STATES: [State; 7] = [
        State::Level { time: 0, amount: 0 },
        State::Level { time: (1 << 52) - 1, amount: (1 << 52) - 1 },
        State::Wide { time: (1 << 52) - 1, units: (1 << 42) - 1, parts: (1 << 41) - 1 },
        State::Window { time: 0, count: 0, previous: 0 },
        State::Window { time: (1 << 52) - 1, count: (1 << 32) - 1, previous: (1 << 32) - 1 },
        State::Window { time: 1, count: 1 << 32, previous: 0 },
        State::Window { time: 1, count: 0, previous: (1 << 48) - 1 },
    ];

    #[test]
    fn what_is_kept_is_what_was_given() {
        let log = State::Log { time: 7, units: [1, 2, 3].into() };
        let slots = State::Slots { cohorts: [(7, 1), (9, 2)].into() };
        for state in STATES.into_iter().chain([log, slots]) {
            assert_eq!(*Kept::new(state.clone()).state(), state);
            for before in STATES {
                let mut kept = Kept::new(before);
                kept.set(state.clone());
                assert_eq!(*kept.state(), state);
            }
        }
    }

    #[test]
    fn a_rank_keeps_the_latest_time_apart_from_its_class() {
        let longest = (1 << 53) - (1 << STEP_BITS);
        for used_up in [false, true] {
            for (now_us, reset, idle_at) in
                [(7, 2, 1 << STEP_BITS), ((1 << STEP_BITS) - 1, 1, 2 << STEP_BITS), (7, u64::MAX, longest)]
            {
                let rank = Rank::new(&Quota::per_minute(1), now_us, reset, used_up);
                assert_eq!((rank.idle_at(), rank.class()), (idle_at, usize::from(used_up)));
            }
        }
    }
}
