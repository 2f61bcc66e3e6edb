//! Which other checks the refusal of a check implies.
//!
//! Until a refused check fits, none that demands at least as much does, as long as nothing is
//! refunded: time only lowers what is counted, and other requests only raise it. What "as much"
//! means depends on the algorithm: see [`Refusal`]. As the wait that is returned must be exact, the store is
//! called once for each sum whose wait is not cached.

use crate::core::Quota;
use crate::core::algorithm::{Refusal, mul_div_ceil};
use crate::store::Check;

/// How much a check demands of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// A larger demand of the same kind is refused at least as long.
    pub(super) units: u64,
    /// A refusal implies none of another kind.
    pub(super) kind: u64,
}

impl Demand {
    /// Returns what a check demands: the sum of its cost and floor, or its floor alone where the algorithm refuses by
    /// that. Sums beyond the capacity are all alike, as no wait helps any of them.
    pub(super) fn of(check: &Check) -> Self {
        let (quota, sum) = (check.counter.quota(), check.cost.saturating_add(check.floor));
        let most = quota.capacity();
        match quota.facts().refusal {
            Refusal::LargerFloors if sum <= most => Self { units: check.floor, kind: 0 },
            Refusal::LargerSums | Refusal::LargerFloors => Self { units: sum.min(most + 1), kind: 0 },
            Refusal::SameSum => Self { units: sum.min(most + 1), kind: sum.min(most + 1) },
        }
    }

    /// Returns whether no wait can help: more is demanded than the quota ever holds.
    pub(super) fn is_beyond(self, quota: &Quota) -> bool {
        self.units > quota.capacity()
    }

    /// Returns the microseconds that this demand waits for after a smaller one fits; rounded up.
    ///
    /// Where units return evenly these are `(units - smaller) * window / limit` ticks, and 0 for other algorithms.
    /// `smaller` must not exceed the units of this demand.
    pub(super) fn longer_than(self, smaller: u64, quota: &Quota) -> u64 {
        if !quota.facts().returns_evenly {
            return 0;
        }
        let ticks = mul_div_ceil(self.units - smaller, quota.window_ticks(), quota.limit());
        ticks.saturating_mul(quota.tick().micros())
    }
}
