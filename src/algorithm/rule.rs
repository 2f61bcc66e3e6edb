//! A quota in the numbers the arithmetic works with, and the choice of the algorithm.

use super::{State, Step, fixed_window, token_bucket};
use crate::quota::{Algorithm, Quota};
use crate::store::Change;

/// No quota holds more units than this, so a larger cost decides nothing differently.
pub(crate) const MOST_UNITS: u64 = crate::quota::EXACT / 8;

/// A quota in ticks and units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(super) window: u64,
    pub(super) limit: u64,
    pub(super) capacity: u64,
}

impl From<&Quota> for Rule {
    fn from(quota: &Quota) -> Self {
        Self { window: quota.window_ticks(), limit: quota.limit(), capacity: quota.capacity() }
    }
}

/// Decides one check on the state found, without changing it. `now` is in ticks of the quota.
pub(crate) fn decide(quota: &Quota, state: Option<&State>, now: u64, cost: u64, floor: u64) -> Step {
    let rule = Rule::from(quota);
    let (cost, floor) = (cost.min(MOST_UNITS), floor.min(MOST_UNITS));
    match quota.algorithm() {
        Algorithm::FixedWindow => fixed_window::decide(state, now, rule, cost, floor),
        Algorithm::TokenBucket => token_bucket::decide(state, now, rule, cost, floor),
    }
}

/// Gives back or adds units after the fact; `None` when there is nothing to write.
///
/// `stamp` is that of the step which took the units, or `None` for the state as it stands.
/// Returns the new state and the time until it resets.
pub(crate) fn adjust(
    quota: &Quota,
    state: Option<&State>,
    now: u64,
    change: Change,
    stamp: Option<u64>,
) -> Option<(State, u64)> {
    let rule = Rule::from(quota);
    let (refund, extra) = match change {
        Change::Refund(units) => (units.min(MOST_UNITS), 0),
        Change::Charge(units) => (0, units.min(MOST_UNITS)),
    };
    match quota.algorithm() {
        Algorithm::FixedWindow => fixed_window::adjust(state, now, rule, refund, extra, stamp),
        Algorithm::TokenBucket => token_bucket::adjust(state, now, rule, refund, extra),
    }
}
