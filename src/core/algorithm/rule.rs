//! A quota in the numbers the arithmetic works with, and the choice of the algorithm.

use super::{State, Step, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};
use crate::core::Change;
use crate::core::quota::{Algorithm, Quota};

/// No quota holds more units than this, so a larger cost decides nothing differently.
pub(crate) const MOST_UNITS: u64 = crate::core::quota::EXACT / 8;

/// A quota in ticks and units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(super) window: u64,
    pub(super) limit: u64,
    pub(super) capacity: u64,
}

/// Units given back or added after the fact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjustment {
    pub(crate) refund: u64,
    pub(crate) charge: u64,
    /// The stamp of the step that took the units, or [`NEVER`](super::NEVER) for the state as it stands.
    pub(crate) stamp: u64,
}

impl Adjustment {
    pub(crate) fn new(wanted: Change, stamp: u64) -> Self {
        let (refund, charge) = match wanted {
            Change::Refund(units) => (units.min(MOST_UNITS), 0),
            Change::Charge(units) => (0, units.min(MOST_UNITS)),
        };
        Self { refund, charge, stamp }
    }
}

/// What became of an adjustment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjusted {
    /// Units that were given back or added, whole ones.
    pub(crate) units: u64,
    /// The new state, and the time until it resets; `None` when there is nothing to write.
    pub(crate) state: Option<(State, u64)>,
}

impl Adjusted {
    pub(super) fn new(units: u64, changed: bool, state: State, reset: u64) -> Self {
        Self { units, state: changed.then_some((state, reset)) }
    }
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
    let decide = match quota.algorithm() {
        Algorithm::FixedWindow => fixed_window::decide,
        Algorithm::SlidingLog => sliding_log::decide,
        Algorithm::SlidingWindow => sliding_window::decide,
        Algorithm::TokenBucket => token_bucket::decide,
        Algorithm::LeakyBucket => leaky_bucket::decide,
    };
    decide(state, now, rule, cost, floor)
}

/// Gives back or adds units after the fact.
pub(crate) fn adjust(quota: &Quota, state: Option<&State>, now: u64, change: Adjustment) -> Adjusted {
    let rule = Rule::from(quota);
    let adjust = match quota.algorithm() {
        Algorithm::FixedWindow => fixed_window::adjust,
        Algorithm::SlidingLog => sliding_log::adjust,
        Algorithm::SlidingWindow => sliding_window::adjust,
        Algorithm::TokenBucket => token_bucket::adjust,
        Algorithm::LeakyBucket => leaky_bucket::adjust,
    };
    adjust(state, now, rule, change)
}
