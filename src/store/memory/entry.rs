//! What is kept of one counter.

use std::borrow::Cow;

use super::fingerprint::{Fingerprint, TAIL};
use super::kept::Kept;
use crate::Quota;
use crate::algorithm::State;

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

    #[inline]
    pub(super) fn set(&mut self, state: State, rank: Rank) {
        self.kept.set(state);
        self.rest = self.rest & TAIL | rank.bits;
    }

    /// Notes that a request was refused.
    pub(super) fn refused(&mut self) {
        self.rest |= THROTTLED;
    }

    pub(super) fn rank(&self) -> Rank {
        Rank { bits: self.rest & !TAIL }
    }
}

/// What an entry's place in the order of eviction depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    /// [`idle_at`](Self::idle_at) in grains of time, and above it one bit: whether the key [is
    /// throttled](Self::throttled). None of [`TAIL`].
    bits: u64,
}

/// The logarithm of a grain of time in microseconds: it is about a millisecond.
const GRAIN: u32 = 10;

/// Above all times that are told in microseconds below 2^53.
const THROTTLED: u64 = 1 << (53 - GRAIN);

impl Rank {
    #[inline]
    pub(super) fn new(quota: &Quota, now_us: u64, reset: u64, throttled: bool) -> Self {
        let idle_at = now_us.saturating_add(reset.saturating_mul(quota.tick().micros()));
        let grains = (idle_at >> GRAIN) + 1;
        Self { bits: grains.min(THROTTLED - 1) | if throttled { THROTTLED } else { 0 } }
    }

    /// A time in microseconds when untouched state admits a full limit, so that the entry says
    /// nothing: the first that can be told.
    pub(super) fn idle_at(self) -> u64 {
        (self.bits & !THROTTLED) << GRAIN
    }

    /// Whether the last request was refused, or no unit is left.
    pub(super) fn throttled(self) -> bool {
        self.bits & THROTTLED != 0
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

    #[test]
    fn a_rank_keeps_the_latest_time_apart_from_being_throttled() {
        let (quota, longest) = (Quota::per_hour(1), (1 << 53) - (1 << GRAIN));
        for throttled in [false, true] {
            for (now_us, reset, idle_at) in [(7, 2, 2_048), (24, 1, 2_048), (7, u64::MAX, longest)] {
                let rank = Rank::new(&quota, now_us, reset, throttled);
                assert_eq!((rank.idle_at(), rank.throttled()), (idle_at, throttled));
            }
        }
    }

    #[test]
    fn an_entry_is_of_its_fingerprint_whatever_its_rank() {
        let quota = Quota::per_hour(1);
        let counter = |key: u32| Counter { policy: "p".into(), key: Key::new("k", key.to_string()), quota };
        let (fingerprints, state) = (Fingerprints::new(), || State::Level { time: 1, amount: 2 });
        for key in 0..200 {
            let of = fingerprints.of(&counter(key));
            let mut entry = Entry::new(of, state(), Rank::new(&quota, 0, u64::MAX, false));
            assert!(entry.is_of(of) && !entry.rank().throttled());
            entry.refused();
            assert!(entry.is_of(of) && entry.rank().throttled());
            entry.set(state(), Rank::new(&quota, 5_000, 0, false));
            assert!(entry.is_of(of) && !entry.rank().throttled());
            assert_eq!(entry.rank().idle_at(), 5_120);
            for bit in 44..64 {
                assert!(!entry.is_of(Fingerprint { tail: of.tail ^ 1 << bit, ..of }));
            }
            assert!(!entry.is_of(Fingerprint { hash: of.hash ^ 1, ..of }));
        }
    }
}
