//! A quota in the numbers of the arithmetic, and changes of units in the same numbers.
//!
//! These are the inputs and outputs of an algorithm besides its state. A [`Rule`] comes from a quota that was
//! checked when it was built, which is why the functions of the algorithms need no checks for overflow.
//! Costs and changes come from requests and are cut to [`MOST_UNITS`].

use super::State;
use crate::core::Change;

/// No intermediate value of any decision reaches this: Lua's numbers hold every integer below it,
/// and their quotients round down correctly.
pub(crate) const EXACT: u64 = 1 << 52;

/// No quota holds more units than this, so a larger cost decides nothing differently.
pub(crate) const MOST_UNITS: u64 = EXACT / 8;

/// A quota in ticks and units.
///
/// `window` and `limit` are at least 1, and `limit` and `capacity` are within what
/// [`most_units`](super::Algorithm::most_units) allows for the window, or the algorithm's longer form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The window in ticks.
    pub(crate) window: u64,
    /// Units per window.
    pub(crate) limit: u64,
    /// The most units that can be taken at once, at least 1; only buckets and queues read it.
    pub(crate) capacity: u64,
}

/// A refund or a charge after the fact.
///
/// One of `refund` and `charge` is 0, but of a renewal of slots, where they are equal. Both are at most [`MOST_UNITS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjustment {
    /// Units to refund.
    pub(crate) refund: u64,
    /// Units to charge.
    pub(crate) charge: u64,
    /// The stamp of the step that took the units, or [`NEVER`](super::NEVER) for the state as it stands.
    pub(crate) stamp: u64,
}

impl Adjustment {
    /// Returns a change in the algorithms' numbers, to units that were taken at `stamp`.
    pub(crate) fn new(wanted: Change, stamp: u64) -> Self {
        let (refund, charge) = match wanted {
            Change::Refund(units) => (units.min(MOST_UNITS), 0),
            Change::Charge(units) => (0, units.min(MOST_UNITS)),
            Change::Renew(units) => (units.min(MOST_UNITS), units.min(MOST_UNITS)),
            // They change no units.
            Change::Strike(_) | Change::Lift => (0, 0),
        };
        Self { refund, charge, stamp }
    }
}

/// The result of an adjustment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjusted {
    /// Units that were refunded or charged, whole ones; of a renewal the slots that were still there.
    pub(crate) units: u64,
    /// The new state, and the time until it resets; `None` when there is nothing to write.
    pub(crate) state: Option<(State, u64)>,
}

impl Adjusted {
    /// Returns the result of an adjustment; the state is dropped unless it `changed`.
    pub(super) fn new(units: u64, changed: bool, state: State, reset: u64) -> Self {
        Self { units, state: changed.then_some((state, reset)) }
    }
}
