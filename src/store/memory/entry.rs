//! What is kept of one counter.

use std::borrow::Cow;

use super::fingerprint::{Fingerprint, TAIL};
use super::kept::Kept;
use crate::Quota;
use crate::core::algorithm::State;

/// A counter in 32 bytes: two share a line of a processor's cache, and none lies across two lines.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct Entry {
    /// The fingerprint's.
    pub(super) hash: u64,
    /// The fingerprint's tail, and below it the bits of the rank.
    rest: u64,
    kept: Kept,
}

impl Entry {
    pub(super) fn new(of: Fingerprint, state: State, rank: Rank) -> Self {
        Self { hash: of.hash, rest: of.tail | rank.bits, kept: Kept::new(state) }
    }

    #[inline]
    pub(super) fn is_of(&self, fingerprint: Fingerprint) -> bool {
        self.hash == fingerprint.hash && self.rest & TAIL == fingerprint.tail
    }

    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        self.kept.state()
    }

    /// Keeps what follows from an admitted request, or from a change after the fact.
    #[inline]
    pub(super) fn set(&mut self, state: State, rank: Rank, now_us: u64) {
        self.kept.set(state);
        self.rest = self.rest & TAIL | rank.after(self.rank(), now_us).bits;
    }

    /// Notes that a request was refused.
    pub(super) fn refused(&mut self) {
        let rank = self.rank();
        self.rest = self.rest & TAIL | Rank::REFUSED | rank.credited(ONE_CREDIT) | rank.bits & IDLE_AT;
    }

    /// Takes credit away, of which there is so much.
    pub(super) fn lose(&mut self, credit: Credit) {
        self.rest -= credit.bits;
    }

    pub(super) fn rank(&self) -> Rank {
        Rank { bits: self.rest & !TAIL }
    }
}

/// An entry's place in the order of eviction, in which the lesser go first.
///
/// None of [`TAIL`], but from above: its class, its credit, and [`idle_at`](Self::idle_at) in grains of
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    bits: u64,
}

/// How many requests of a key there were since it was last idle, less what it lost by the evictions of
/// others: up to 127.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    bits: u64,
}

/// The logarithm of a grain of time in microseconds: it is about a quarter of a second.
const GRAIN: u32 = 18;

/// The bits of all times that are told in microseconds below 2^53.
const IDLE_AT: u64 = ONE_CREDIT - 1;

const ONE_CREDIT: u64 = 1 << (53 - GRAIN);

const CREDITS: u64 = 127 * ONE_CREDIT;

const CLASSES: u64 = !TAIL & !CREDITS & !IDLE_AT;

impl Rank {
    /// The classes are those of keys that have units left, that have none, and that have none or not
    /// enough for the last request, which was refused.
    pub(super) const CLASSES: usize = 3;

    const USED_UP: u64 = CREDITS + ONE_CREDIT;
    const REFUSED: u64 = 2 * Self::USED_UP;

    /// The rank of a key after its first request.
    #[inline]
    pub(super) fn new(quota: &Quota, now_us: u64, reset: u64, used_up: bool) -> Self {
        let idle_at = now_us.saturating_add(reset.saturating_mul(quota.tick().micros()));
        let grains = (idle_at >> GRAIN) + 1;
        Self { bits: grains.min(IDLE_AT) | ONE_CREDIT | if used_up { Self::USED_UP } else { 0 } }
    }

    /// The rank after a change that no request made.
    pub(super) fn without_credit(self) -> Self {
        Self { bits: self.bits & !CREDITS }
    }

    /// A time in microseconds when untouched state admits a full limit, so that the entry says
    /// nothing: the first that can be told.
    pub(super) fn idle_at(self) -> u64 {
        (self.bits & IDLE_AT) << GRAIN
    }

    /// The number of its class.
    pub(super) fn class(self) -> usize {
        usize::from(self.bits >= Self::USED_UP) + usize::from(self.bits >= Self::REFUSED)
    }

    pub(super) fn credit(self) -> Credit {
        Credit { bits: self.bits & CREDITS }
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

    /// The bits of its credit, with more.
    #[inline]
    fn credited(self, more: u64) -> u64 {
        ((self.bits & CREDITS) + more).min(CREDITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::fingerprint::Fingerprints;
    use crate::{Key, store::Counter};

    #[test]
    fn an_entry_takes_half_a_line_of_a_cache() {
        assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (32, 32));
    }

    const HOURLY: Quota = Quota::per_hour(1);
    const STATE: State = State::Level { time: 1, amount: 2 };

    fn entry(rank: Rank) -> Entry {
        let counter = Counter { policy: "p".try_into().expect("a valid name"), key: Key::new("k", "v"), quota: HOURLY };
        Entry::new(Fingerprints::new().of(&counter), STATE, rank)
    }

    fn credit(entry: &Entry) -> u64 {
        entry.rank().credit().bits / ONE_CREDIT
    }

    #[test]
    fn a_rank_keeps_the_latest_time_apart_from_its_class() {
        let longest = (1 << 53) - (1 << GRAIN);
        for used_up in [false, true] {
            for (now_us, reset, idle_at) in
                [(7, 2, 1 << GRAIN), ((1 << GRAIN) - 1, 1, 2 << GRAIN), (7, u64::MAX, longest)]
            {
                let rank = Rank::new(&Quota::per_minute(1), now_us, reset, used_up);
                assert_eq!((rank.idle_at(), rank.class()), (idle_at, usize::from(used_up)));
            }
        }
    }

    #[test]
    fn whoever_was_refused_stays_so_until_a_unit_is_left_or_it_is_idle() {
        let rank = |now_us, used_up| Rank::new(&HOURLY, now_us, 1_000, used_up);
        let mut entry = entry(rank(0, false));
        entry.refused();
        assert_eq!(entry.rank().class(), 2);
        entry.set(STATE, rank(1, true), 1);
        assert_eq!(entry.rank().class(), 2);
        entry.set(STATE, rank(2, false), 2);
        assert_eq!(entry.rank().class(), 0);
        entry.refused();
        let idle = entry.rank().idle_at();
        entry.set(STATE, rank(idle, true), idle);
        assert_eq!((entry.rank().class(), credit(&entry)), (1, 1));
    }

    #[test]
    fn each_request_is_a_credit_up_to_127_and_nothing_else_is() {
        let rank = Rank::new(&HOURLY, 0, 1_000, false);
        let mut entry = entry(rank);
        for requests in 2..200 {
            if requests % 2 == 0 {
                entry.refused();
            } else {
                entry.set(STATE, rank, 0);
            }
            entry.set(STATE, rank.without_credit(), 0);
            assert_eq!((credit(&entry), entry.rank().idle_at()), (requests.min(127), rank.idle_at()));
        }
        entry.lose(rank.credit());
        assert_eq!((credit(&entry), entry.rank().idle_at()), (126, rank.idle_at()));
    }

    #[test]
    fn an_entry_is_of_its_fingerprint_whatever_its_rank() {
        let counter = |key: u32| Counter {
            policy: "p".try_into().expect("a valid name"),
            key: Key::new("k", key.to_string()),
            quota: HOURLY,
        };
        let fingerprints = Fingerprints::new();
        for key in 0..200 {
            let of = fingerprints.of(&counter(key));
            let mut entry = Entry::new(of, STATE, Rank::new(&HOURLY, 0, u64::MAX, false));
            assert!(entry.is_of(of) && entry.rank().class() == 0);
            (0..200).for_each(|_| entry.refused());
            assert!(entry.is_of(of) && entry.rank().class() == 2);
            entry.set(STATE, Rank::new(&HOURLY, 5_000, 0, false), 5_000);
            assert!(entry.is_of(of) && entry.rank().class() == 0);
            assert_eq!(entry.rank().idle_at(), 1 << GRAIN);
            for bit in 44..64 {
                assert!(!entry.is_of(Fingerprint { tail: of.tail ^ 1 << bit, ..of }));
            }
            assert!(!entry.is_of(Fingerprint { hash: of.hash ^ 1, ..of }));
        }
    }
}
