//! Which counters are evicted first.
//!
//! A quota, the time and what a step left come in; a number of 44 bits goes out, and the smaller one is evicted first.
//! From the highest bit down it is:
//!
//! | bits | what | values |
//! | --- | --- | --- |
//! | 42 to 43 | class | 0: units are left, 1: used up, 2: the last request was refused |
//! | 35 to 41 | credit | requests since the key was last idle, at most 127 |
//! | 0 to 34 | `idle_at` | the time at which the key is idle, in steps of 2^18 µs |
//!
//! One comparison of integers orders all three, and a counter keeps its place in the 44 bits that its fingerprint's
//! [`TAIL`] leaves. The times are rounded up to steps of 2^18 µs, so no key is dropped as idle before it is. What the
//! order promises to a key whose counter others try to have evicted is stated at [`MemoryStore`](crate::MemoryStore).

use crate::core::Quota;
use crate::store::map::TAIL;

/// A counter's place in the order of eviction, in which the lesser go first.
///
/// None of [`TAIL`], but from above: its class, its credit, and [`idle_at`](Self::idle_at) in steps of
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Class, credit and time as the [page](self) has them; none of [`TAIL`].
    pub(super) bits: u64,
}

/// How many requests of a key there were since it was last idle, less what it lost by the evictions of
/// others: up to 127.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    /// The number of requests times [`ONE_CREDIT`]: the bits of a rank that count them.
    pub(super) bits: u64,
}

/// The logarithm of a step of times in microseconds: a step is about a quarter of a second.
pub(super) const STEP_BITS: u32 = 18;

/// The bits of all times, which are microseconds below 2^53.
const IDLE_AT: u64 = ONE_CREDIT - 1;

/// The credit of one request: the lowest bit above the times.
pub(super) const ONE_CREDIT: u64 = 1 << (53 - STEP_BITS);

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
    pub(super) fn delayed(self, by_us: u64) -> Self {
        let steps = (self.bits & IDLE_AT).saturating_add((by_us >> STEP_BITS) + 1);
        Self { bits: self.bits & !IDLE_AT | steps.min(IDLE_AT) }
    }

    /// The number of its class.
    pub(super) fn class(self) -> usize {
        usize::from(self.bits >= Self::USED_UP) + usize::from(self.bits >= Self::REFUSED)
    }

    /// Returns the credit, which [`lose`](super::counter::PackedCounter::lose) takes from others.
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
