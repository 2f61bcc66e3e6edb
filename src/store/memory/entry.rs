//! What is kept of one counter.

use std::borrow::Cow;

use super::fingerprint::Fingerprint;
use super::kept::Kept;
use crate::Quota;
use crate::algorithm::State;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) fingerprint: Fingerprint,
    kept: Kept,
    pub(super) rank: Rank,
}

impl Entry {
    pub(super) fn new(fingerprint: Fingerprint, state: State, rank: Rank) -> Self {
        Self { fingerprint, kept: Kept::new(state), rank }
    }

    #[inline]
    pub(super) fn state(&self) -> Cow<'_, State> {
        self.kept.state()
    }

    #[inline]
    pub(super) fn set(&mut self, state: State, rank: Rank) {
        self.kept.set(state);
        self.rank = rank;
    }
}

/// What an entry's place in the order of eviction depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    /// [`idle_at`](Self::idle_at), and above it one bit: whether the key [is throttled](Self::throttled).
    bits: u64,
}

const THROTTLED: u64 = 1 << 63;

impl Rank {
    #[inline]
    pub(super) fn new(quota: &Quota, now_us: u64, reset: u64, throttled: bool) -> Self {
        let idle_at = now_us.saturating_add(reset.saturating_mul(quota.tick().micros()));
        Self { bits: idle_at.min(THROTTLED - 1) | if throttled { THROTTLED } else { 0 } }
    }

    /// When untouched state admits a full limit, in microseconds: the entry says nothing then.
    pub(super) fn idle_at(self) -> u64 {
        self.bits & !THROTTLED
    }

    /// Whether the last request was refused, or no unit is left.
    pub(super) fn throttled(self) -> bool {
        self.bits & THROTTLED != 0
    }

    pub(super) fn refused(&mut self) {
        self.bits |= THROTTLED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_forty_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn a_rank_keeps_the_latest_time_apart_from_being_throttled() {
        let quota = Quota::per_hour(1);
        for throttled in [false, true] {
            for (now_us, reset, idle_at) in [(7, 2, 2_007), (7, u64::MAX, THROTTLED - 1)] {
                let mut rank = Rank::new(&quota, now_us, reset, throttled);
                assert_eq!((rank.idle_at(), rank.throttled()), (idle_at, throttled));
                rank.refused();
                assert_eq!((rank.idle_at(), rank.throttled()), (idle_at, true));
            }
        }
    }
}
