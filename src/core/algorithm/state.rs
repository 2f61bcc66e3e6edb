//! Quota parameters, states, steps and adjustments, which the algorithms read and return.
//!
//! A [`QuotaParams`] is made from a quota that was checked when it was built, so the algorithms need no checks for
//! overflow. Costs and changes are set by requests and are cut to [`MAX_UNITS`].
//!
//! Stores keep a [`CounterState`] without reading it, and pass it with the next check. A state more than a window ahead
//! of the clock is set aside, because it would deny for longer than any state may matter. Up to a window ahead, time
//! stands still until the clock has caught up, so a clock that steps back neither refills nor rewinds.

use crate::core::Change;
use crate::core::calendar::Window;

/// Bound of all numbers kept or returned, below which Lua's numbers are exact and their quotients round down correctly.
/// A level beyond it is split into units and parts.
pub(crate) const EXACT: u64 = 1 << 52;

/// State of one counter. Times are ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CounterState {
    /// Start of a window and its count, or the last time seen and a level: fixed windows, token buckets, leaky buckets.
    Level { time: u64, amount: u64 },
    /// Last time seen, and a level of `EXACT` parts or more, split into units and parts: large buckets.
    Wide { time: u64, units: u64, parts: u64 },
    /// Last time seen, count of its window, and count of the window before: sliding windows.
    Window { time: u64, count: u64, previous: u64 },
    /// Last time seen, and the low 32 bits of the time of every unit, in order: sliding logs.
    Log { time: u64, units: Box<[u32]> },
    /// Time of the first slot and number of slots of each cohort, in order, never empty: concurrency.
    Slots { cohorts: Box<[(u64, u32)]> },
    /// End of the last ban, its length, start of the window of strikes, and their number, in milliseconds.
    Ban { ends: u64, length: u64, start: u64, strikes: u64 },
    /// Digest of a log from Redis: the last time seen, the units that still count, the time of the newest unit, and the
    /// time of the unit to wait for.
    #[cfg(feature = "redis")]
    LogDigest { time: u64, live: u64, newest: u64, leaving: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateStatus {
    Kept,
    Fresh,
    Ahead,
    #[cfg(feature = "redis")]
    Foreign,
    /// No state was read, because the server's clock is in none of the calendar windows that it was sent.
    #[cfg(feature = "redis")]
    Outside,
}

impl CounterState {
    pub(crate) fn slots(cohorts: Box<[(u64, u32)]>) -> Option<Self> {
        let are_in_order = cohorts.windows(2).all(|two| two[0].0 < two[1].0);
        (are_in_order && !cohorts.is_empty()).then_some(CounterState::Slots { cohorts })
    }

    fn time(&self) -> u64 {
        match self {
            CounterState::Level { time, .. } | CounterState::Wide { time, .. } => *time,
            CounterState::Window { time, .. } | CounterState::Log { time, .. } => *time,
            CounterState::Slots { cohorts } => cohorts.last().map_or(0, |newest| newest.0),
            CounterState::Ban { start, .. } => *start,
            #[cfg(feature = "redis")]
            CounterState::LogDigest { time, .. } => *time,
        }
    }

    pub(super) fn read(state: Option<&CounterState>, now: u64, window: u64) -> (Option<&CounterState>, StateStatus) {
        match state {
            None => (None, StateStatus::Fresh),
            Some(state) if state.time() > now + window => (None, StateStatus::Ahead),
            Some(state) => (Some(state), StateStatus::Kept),
        }
    }
}

/// No quota holds more units, so a larger cost decides nothing differently.
pub(crate) const MAX_UNITS: u64 = EXACT / 8;

/// `a * b / c`, rounded down, with a product of 128 bits.
pub(super) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => cut(u128::from(a) * u128::from(b) / u128::from(c)),
    }
}

/// `a * b / c`, rounded up, with a product of 128 bits.
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.div_ceil(c),
        None => cut((u128::from(a) * u128::from(b)).div_ceil(c.into())),
    }
}

pub(super) fn cut(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Quota in ticks and units.
///
/// `window` and `limit` are at least 1, and `limit` and `capacity` are within
/// [`most_units`](super::Algorithm::most_units) for the window, or for the algorithm's longer form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaParams {
    pub(crate) window: u64,
    pub(crate) limit: u64,
    pub(crate) capacity: u64,
    pub(crate) calendar: Option<Window>,
    /// Slots up to which a request starts without a wait, at least 1. Only queues read it.
    pub(crate) at_once: u64,
}

impl QuotaParams {
    /// Returns `true` if the level of a bucket may reach [`EXACT`]: it is up to twice the capacity times the window.
    #[inline]
    pub(crate) const fn is_wide(&self) -> bool {
        (2 * self.capacity + 1).saturating_mul(self.window) >= EXACT
    }
}

/// Refund or charge after the fact.
///
/// One of `refund` and `charge` is 0, except in a renewal of slots, where they are equal. Both are at most
/// [`MAX_UNITS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjustment {
    pub(crate) refund: u64,
    pub(crate) charge: u64,
    /// Stamp of the step that took the units, or [`NEVER`] for the state as it stands.
    pub(crate) stamp: u64,
}

impl Adjustment {
    pub(crate) fn new(wanted: Change, stamp: u64) -> Self {
        let (refund, charge) = match wanted {
            Change::Refund(units) => (units.min(MAX_UNITS), 0),
            Change::Charge(units) => (0, units.min(MAX_UNITS)),
            Change::Renew(units) => (units.min(MAX_UNITS), units.min(MAX_UNITS)),
            // They change no units of the counter.
            Change::Strike(_) | Change::Lift | Change::Reset => (0, 0),
        };
        Self { refund, charge, stamp }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjusted {
    pub(crate) units: u64,
    /// New state and the time until it resets, or `None` if there is nothing to write.
    pub(crate) state: Option<(CounterState, u64)>,
}

impl Adjusted {
    pub(super) fn new(units: u64, changed: bool, state: CounterState, reset: u64) -> Self {
        Self { units, state: changed.then_some((state, reset)) }
    }
}

/// A wait that never ends: every real one is shorter.
pub(crate) const NEVER: u64 = EXACT;

/// Result of one check, in ticks and units.
///
/// Times are from now on, except for the stamp, which is a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) fits: bool,
    pub(crate) remaining: u64,
    /// Until this request fits, or, if it fits and nothing remains, until a unit returns.
    pub(crate) wait: u64,
    /// Until untouched state allows a full limit.
    pub(crate) reset: u64,
    /// How long an allowed request waits for its turn; for a ban that just began, its length.
    pub(crate) delay: u64,
    /// Time that the state assigns to the units, which a refund must name.
    pub(crate) stamp: u64,
    pub(crate) state: Option<CounterState>,
    pub(crate) found: StateStatus,
}
