//! What is kept for one key.

/// The state of one counter. Times are ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A time and an amount: a window's start and its count, or the last time seen and a level.
    Level { time: u64, amount: u64 },
    /// The last time seen, the count of its window, and that of the window before.
    Window { time: u64, count: u64, previous: u64 },
    /// The last time seen, and the low 32 bits of the time of every unit, in order.
    Log { time: u64, units: Box<[u32]> },
    /// What Redis tells of a log: the last time seen, the units that still count, the time of the
    /// newest, and that of the one to wait for.
    #[cfg(feature = "redis")]
    LogDigest { time: u64, live: u64, newest: u64, leaving: u64 },
}

/// What was under a key.
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
}

impl State {
    fn time(&self) -> u64 {
        match self {
            State::Level { time, .. } | State::Window { time, .. } | State::Log { time, .. } => *time,
            #[cfg(feature = "redis")]
            State::LogDigest { time, .. } => *time,
        }
    }

    /// The state as of `now`, and what was found: state more than a window ahead is none.
    pub(super) fn read(state: Option<&State>, now: u64, window: u64) -> (Option<&State>, Found) {
        match state {
            None => (None, Found::Fresh),
            Some(state) if state.time() > now + window => (None, Found::Ahead),
            Some(state) => (Some(state), Found::Kept),
        }
    }
}

/// Reads a time and an amount; of none, `now` and 0.
pub(super) fn read_level(state: Option<&State>, now: u64, window: u64) -> (u64, u64, Found) {
    match State::read(state, now, window) {
        (Some(State::Level { time, amount }), found) => (*time, *amount, found),
        (_, found) => (now, 0, found),
    }
}

/// Reads a level that falls by `limit` a tick, as of the last time seen or `now`.
pub(super) fn read_falling(state: Option<&State>, now: u64, window: u64, limit: u64) -> (u64, u64, Found) {
    let (time, level, found) = read_level(state, now, window);
    // Where the product does not fit, it is above every level.
    let fallen = now.saturating_sub(time).saturating_mul(limit);
    (time.max(now), level.saturating_sub(fallen), found)
}
