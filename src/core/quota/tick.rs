//! The unit of time.

/// The unit of time of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tick {
    /// A microsecond, for windows up to 60 s.
    Micro,
    /// A millisecond, for longer windows.
    Milli,
}

impl Tick {
    /// Returns the length of a tick in microseconds.
    pub(crate) const fn micros(self) -> u64 {
        match self {
            Tick::Micro => 1,
            Tick::Milli => 1_000,
        }
    }

    /// Returns the whole ticks of a time in microseconds.
    pub(crate) const fn of(self, micros: u64) -> u64 {
        match self {
            Tick::Micro => micros,
            Tick::Milli => micros / 1_000,
        }
    }
}
