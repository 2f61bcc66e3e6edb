//! Which counters are evicted first.

use crate::core::Quota;
use crate::store::map::TAIL;

/// A counter's place in the order of eviction, in which the lesser go first.
///
/// None of [`TAIL`], but from above: its class, its credit, and [`idle_at`](Self::idle_at) in grains of
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) bits: u64,
}

/// How many requests of a key there were since it was last idle, less what it lost by the evictions of
/// others: up to 127.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    pub(super) bits: u64,
}

/// The logarithm of a grain of time in microseconds: it is about a quarter of a second.
pub(super) const GRAIN: u32 = 18;

/// The bits of all times, which are microseconds below 2^53.
const IDLE_AT: u64 = ONE_CREDIT - 1;

pub(super) const ONE_CREDIT: u64 = 1 << (53 - GRAIN);

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

    /// A time in microseconds when untouched state admits a full limit, so that the counter says
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
    pub(super) fn after(self, before: Self, now_us: u64) -> Self {
        if before.idle_at() <= now_us {
            return self;
        }
        let stays = self.bits & CLASSES == Self::USED_UP && before.bits >= Self::REFUSED;
        let class = if stays { Self::REFUSED } else { self.bits & CLASSES };
        Self { bits: class | before.credited(self.bits & CREDITS) | self.bits & IDLE_AT }
    }

    /// The rank after one more request, which was refused.
    pub(super) fn refused(self) -> Self {
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
}
