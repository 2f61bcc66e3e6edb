//! The state of one counter, and how it is read.
//!
//! Stores keep a [`State`] without reading it, and pass it with the next check; algorithms read it as
//! of `now`. State of a clock more than a window ahead is set aside, as it would refuse for longer than any state may
//! matter; up to a window ahead, time stands still until the clock has caught up, so that stepping back neither refills
//! nor rewinds.

/// No number that is kept or returned reaches this: Lua's numbers hold every integer below it, and their quotients
/// round down correctly. Of a level that does, units and parts are kept apart.
pub(crate) const EXACT: u64 = 1 << 52;

/// The state of one counter. Times are ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
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
pub(crate) enum Found {
    /// State to go on from.
    Kept,
    /// Nothing.
    Fresh,
    /// State more than a window ahead of the clock: it was set aside.
    Ahead,
    /// A value that is not ours: it was set aside. Only Redis can hold one.
    #[cfg(feature = "redis")]
    Foreign,
    /// No state was read, as the server's clock is in none of the windows of a calendar that it was sent.
    #[cfg(feature = "redis")]
    Outside,
}

impl State {
    /// Returns a state of slots; `None` if there are no cohorts, or they are not in order.
    pub(crate) fn slots(cohorts: Box<[(u64, u32)]>) -> Option<Self> {
        let are_in_order = cohorts.windows(2).all(|two| two[0].0 < two[1].0);
        (are_in_order && !cohorts.is_empty()).then_some(State::Slots { cohorts })
    }

    /// Returns the time the state has: the last one seen, the start of a fixed window, or that of the newest slots.
    fn time(&self) -> u64 {
        match self {
            State::Level { time, .. } | State::Wide { time, .. } => *time,
            State::Window { time, .. } | State::Log { time, .. } => *time,
            State::Slots { cohorts } => cohorts.last().map_or(0, |newest| newest.0),
            State::Ban { start, .. } => *start,
            #[cfg(feature = "redis")]
            State::LogDigest { time, .. } => *time,
        }
    }

    /// Returns the state if it is usable at `now`, and what was found: state more than a window ahead is none.
    pub(super) fn read(state: Option<&State>, now: u64, window: u64) -> (Option<&State>, Found) {
        match state {
            None => (None, Found::Fresh),
            Some(state) if state.time() > now + window => (None, Found::Ahead),
            Some(state) => (Some(state), Found::Kept),
        }
    }
}

/// Reads a time and an amount; of no state, `now` and 0, and of a wide level the most by which times are exact.
pub(super) fn read_level(state: Option<&State>, now: u64, window: u64) -> (u64, u64, Found) {
    match State::read(state, now, window) {
        (Some(State::Level { time, amount }), found) => (*time, *amount, found),
        // Its limit was larger: no rule that reads it here has a deeper debt.
        (Some(State::Wide { time, .. }), found) => (*time, EXACT - 1 - window, found),
        (_, found) => (now, 0, found),
    }
}

/// Reads a level that falls by `limit` a tick, as of the last time seen or `now`, whichever is later.
pub(super) fn read_falling(state: Option<&State>, now: u64, window: u64, limit: u64) -> (u64, u64, Found) {
    let (time, level, found) = read_level(state, now, window);
    // Where the product does not fit, it is above every level.
    let fallen = now.saturating_sub(time).saturating_mul(limit);
    (time.max(now), level.saturating_sub(fallen), found)
}
