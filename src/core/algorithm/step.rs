//! The result of an algorithm for one check.
//!
//! A [`Step`] is the whole result of a decision: the headers of a response are computed from the first five
//! fields, the receipt has the stamp, and the store keeps the state. Times are ticks of the quota, from now on, except
//! for the stamp, which is a time.

use super::{EXACT, Found, State};

/// A wait that never ends: every real one is shorter.
pub(crate) const NEVER: u64 = EXACT;

/// The result of one check, in ticks and units, and the state that follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Whether the cost may be taken.
    pub(crate) fits: bool,
    /// Units left beyond the floor.
    pub(crate) remaining: u64,
    /// Until this very request fits, or, when it fits and nothing remains, until a unit returns.
    pub(crate) wait: u64,
    /// Until untouched state admits a full limit.
    pub(crate) reset: u64,
    /// How long an admitted request waits for its turn.
    pub(crate) delay: u64,
    /// The time at which the state accounts for the units taken, which a refund must name.
    pub(crate) stamp: u64,
    /// The state to keep if the request as a whole is admitted; `None` if it does not change.
    pub(crate) state: Option<State>,
    /// The kind of state that was under the key.
    pub(crate) found: Found,
}
