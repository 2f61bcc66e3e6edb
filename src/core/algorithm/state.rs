//! What algorithms read and return: a rule, the state of one counter, a step, and changes of units.
//!
//! A [`QuotaParams`] comes from a quota that was checked when it was built, so the functions of the algorithms need no checks
//! for overflow. Costs and changes come from requests and are cut to [`MAX_UNITS`].
//!
//! Stores keep a [`CounterState`] without reading it, and pass it with the next check; algorithms read it as
//! of `now`. CounterState of a clock more than a window ahead is set aside, as it would refuse for longer than any state may
//! matter; up to a window ahead, time stands still until the clock has caught up, so that stepping back neither refills
//! nor rewinds.

use crate::core::Change;
use crate::core::calendar::Window;

/// No number that is kept or returned reaches this: Lua's numbers hold every integer below it, and their quotients
/// round down correctly. Of a level that does, units and parts are kept apart.
pub(crate) const EXACT: u64 = 1 << 52;

/// The state of one counter. Times are ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CounterState {
    /// A time and an amount: a window's start and its count, or the last time seen and a level.
    ///
    /// Used by fixed windows, token buckets and leaky buckets.
    Level { time: u64, amount: u64 },
    /// The last time seen, and a level of `EXACT` parts or more: its units, and the parts beyond them.
    ///
    /// Used by token buckets and leaky buckets of large capacities.
    Wide { time: u64, units: u64, parts: u64 },
    /// The last time seen, the count of its window, and that of the window before.
    ///
    /// Used by sliding windows.
    Window { time: u64, count: u64, previous: u64 },
    /// The last time seen, and the low 32 bits of the time of every unit, in order.
    ///
    /// Used by sliding logs.
    Log { time: u64, units: Box<[u32]> },
    /// The time of each cohort's first slot, and how many slots it has: in order, and never none.
    ///
    /// Used by concurrency.
    Slots { cohorts: Box<[(u64, u32)]> },
    /// When the last ban of a key ends, how long it is, when the window of strikes began, and how many there are: all
    /// times are milliseconds.
    ///
    /// Used by [bans](super::ban).
    Ban { ends: u64, length: u64, start: u64, strikes: u64 },
    /// The digest of a log from Redis: the last time seen, the units that still count, the time of the
    /// newest, and that of the one to wait for.
    #[cfg(feature = "redis")]
    LogDigest { time: u64, live: u64, newest: u64, leaving: u64 },
}

/// The kind of state that was found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateStatus {
    /// CounterState to go on from.
    Kept,
    /// Nothing.
    Fresh,
    /// CounterState more than a window ahead of the clock: it was set aside.
    Ahead,
    /// A value that is not ours: it was set aside. Only Redis can hold one.
    #[cfg(feature = "redis")]
    Foreign,
    /// No state was read, as the server's clock is in none of the windows of a calendar that it was sent.
    #[cfg(feature = "redis")]
    Outside,
}

impl CounterState {
    /// Returns a state of slots; `None` if there are no cohorts, or they are not in order.
    pub(crate) fn slots(cohorts: Box<[(u64, u32)]>) -> Option<Self> {
        let are_in_order = cohorts.windows(2).all(|two| two[0].0 < two[1].0);
        (are_in_order && !cohorts.is_empty()).then_some(CounterState::Slots { cohorts })
    }

    /// Returns the time the state has: the last one seen, the start of a fixed window, or that of the newest slots.
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

/// No quota holds more units than this, so a larger cost decides nothing differently.
pub(crate) const MAX_UNITS: u64 = EXACT / 8;

/// `a * b / c`, rounded down, whose product may be larger than 64 bits.
pub(super) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => cut(u128::from(a) * u128::from(b) / u128::from(c)),
    }
}

/// `a * b / c`, rounded up, whose product may be larger than 64 bits.
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.div_ceil(c),
        None => cut((u128::from(a) * u128::from(b)).div_ceil(c.into())),
    }
}

/// The number, or the largest of 64 bits if it has more.
pub(super) fn cut(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// A quota in ticks and units.
///
/// `window` and `limit` are at least 1, and `limit` and `capacity` are within what
/// [`most_units`](super::Algorithm::most_units) allows for the window, or the algorithm's longer form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaParams {
    /// The window in ticks.
    pub(crate) window: u64,
    /// Units per window.
    pub(crate) limit: u64,
    /// The most units that can be taken at once, at least 1; only buckets and queues read it.
    pub(crate) capacity: u64,
    /// The window of the calendar that the time is in, if windows are a calendar's; only fixed windows read it.
    pub(crate) calendar: Option<Window>,
    /// The slots up to which a request does not wait for its own, at least 1; only queues read it.
    pub(crate) at_once: u64,
}

impl QuotaParams {
    /// Returns whether the level of a bucket may reach [`EXACT`]: then it is kept as units and the parts beyond them.
    ///
    /// It depends on the capacity, as a level is up to twice that times the window.
    #[inline]
    pub(crate) const fn is_wide(&self) -> bool {
        (2 * self.capacity + 1).saturating_mul(self.window) >= EXACT
    }
}

/// A refund or a charge after the fact.
///
/// One of `refund` and `charge` is 0, except in a renewal of slots, where they are equal. Both are at most
/// [`MAX_UNITS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjustment {
    /// Units to refund.
    pub(crate) refund: u64,
    /// Units to charge.
    pub(crate) charge: u64,
    /// The stamp of the step that took the units, or [`NEVER`] for the state as it stands.
    pub(crate) stamp: u64,
}

impl Adjustment {
    /// Returns a change in the algorithms' numbers, to units that were taken at `stamp`.
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

/// The result of an adjustment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adjusted {
    /// Units that were refunded or charged, whole ones; of a renewal the slots that were still there.
    pub(crate) units: u64,
    /// The new state, and the time until it resets; `None` when there is nothing to write.
    pub(crate) state: Option<(CounterState, u64)>,
}

impl Adjusted {
    /// Returns the result of an adjustment; the state is dropped unless it `changed`.
    pub(super) fn new(units: u64, changed: bool, state: CounterState, reset: u64) -> Self {
        Self { units, state: changed.then_some((state, reset)) }
    }
}

/// A wait that never ends: every real one is shorter.
pub(crate) const NEVER: u64 = EXACT;

/// The result of one check, in ticks and units, and the state that follows from it.
///
/// The headers of a response are computed from the first five fields, the receipt has the stamp, and the store keeps the
/// state. Times are from now on, except for the stamp, which is a time.
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
    /// How long an admitted request waits for its turn; of a ban that just began, how long it is.
    pub(crate) delay: u64,
    /// The time at which the state accounts for the units taken, which a refund must name.
    pub(crate) stamp: u64,
    /// The state to keep if the request as a whole is admitted; `None` if it does not change.
    pub(crate) state: Option<CounterState>,
    /// The kind of state that was under the key.
    pub(crate) found: StateStatus,
}
