//! One entry of the memory store: a fingerprint, a rank and a state, packed into 32 bytes.
//!
//! It comes in as a fingerprint, the state after an admitted request, and a rank; the state goes out, to decide
//! on, and the rank, to choose which to evict. The fingerprint's tail has the highest 20 bits of one word and the rank
//! the 44 below, so that neither changes the other: each write of a rank keeps [`TAIL`] as it is.
//!
//! Only `counters` uses this type. Its size is tested, as two entries share a line of a processor's cache.

use std::borrow::Cow;
use std::num::NonZeroU64;

use super::rank::{Credit, Rank};
use crate::core::algorithm::State;
use crate::store::map::{Entry, Fingerprint, TAIL};

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

impl Entry for PackedCounter {
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
    pub(super) fn lose(&mut self, credit: Credit) {
        self.rest -= credit.bits;
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
pub(super) enum Kept {
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
    pub(super) fn new(state: State) -> Self {
        small(&state).unwrap_or_else(|| Kept::Large(Box::new(state)))
    }

    /// Replaces the state; an allocation that is there is used again where the new state needs one, too.
    #[inline]
    pub(super) fn set(&mut self, state: State) {
        match (small(&state), &mut *self) {
            (Some(small), kept) => *kept = small,
            (None, Kept::Large(kept)) => **kept = state,
            (None, kept) => *kept = Kept::Large(Box::new(state)),
        }
    }

    /// Returns the state as it was given.
    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Key, Quota};
    use crate::store::Counter;
    use crate::store::map::Fingerprints;
    use crate::store::memory::rank::{ONE_CREDIT, STEP_BITS};

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
        packed.rank().credit().bits / ONE_CREDIT
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
}
