//! A quota in the numbers the arithmetic works with, and changes of units in the same.

use super::State;
use crate::core::Change;

/// No intermediate value of any decision reaches this: Lua's numbers hold every integer below it,
/// and their quotients round down correctly.
pub(crate) const EXACT: u64 = 1 << 52;

/// No quota holds more units than this, so a larger cost decides nothing differently.
pub(crate) const MOST_UNITS: u64 = EXACT / 8;

/// A quota in ticks and units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) window: u64,
    pub(crate) limit: u64,
    pub(crate) capacity: u64,
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
