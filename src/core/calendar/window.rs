//! Units of the calendar and their windows.

#[cfg(feature = "calendar")]
use crate::core::Error;

const HOUR_MS: u64 = 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Hour,
    Day,
    /// From a day of the week, 1 (Monday) to 7.
    Week(u8),
    /// From a day of the month, 1 to 31.
    Month(u8),
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week(_) => "week",
            Self::Month(_) => "month",
        }
    }

    /// Longest window without a change of clocks, in milliseconds.
    pub(super) fn usual_ms(self) -> u64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => 24 * HOUR_MS,
            Self::Week(_) => 7 * 24 * HOUR_MS,
            Self::Month(_) => 31 * 24 * HOUR_MS,
        }
    }

    #[cfg(feature = "calendar")]
    pub(super) fn anchored(self, day: u8) -> Result<Self, Error> {
        match self {
            Self::Week(_) if (1..=7).contains(&day) => Ok(Self::Week(day)),
            Self::Month(_) if (1..=31).contains(&day) => Ok(Self::Month(day)),
            Self::Week(_) => {
                Err(Error::invalid(format!("anchor {day} is no day of a week: use 1 for Monday to 7 for Sunday")))
            }
            Self::Month(_) => Err(Error::invalid(format!("anchor {day} is no day of a month: use 1 to 31"))),
            Self::Hour | Self::Day => Err(Error::invalid(format!(
                "anchor {day} is for weeks and months, and the window is one {}",
                self.name()
            ))),
        }
    }
}

/// Window of a calendar: from `start` until just before `end`, in milliseconds since the Unix epoch. Both are whole
/// minutes. `start` is 0 if the window began before the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Window {
    pub(crate) fn length(self) -> u64 {
        self.end - self.start
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Around(pub(crate) [u64; 4]);

impl Around {
    pub(super) fn aligned(length: u64, now_ms: u64) -> Self {
        let start = now_ms - now_ms % length;
        Self([start.saturating_sub(length), start, start.saturating_add(length), start.saturating_add(2 * length)])
    }

    #[inline]
    pub(super) fn window_at(&self, now_ms: u64) -> Option<Window> {
        let [first, start, end, last] = self.0;
        // Mostly it is the one in the middle.
        let [start, end] = match now_ms {
            now if now < first || now >= last => return None,
            now if now < start => [first, start],
            now if now < end => [start, end],
            _ => [end, last],
        };
        Some(Window { start, end })
    }

    pub(super) fn is_around(&self, now_ms: u64) -> bool {
        (self.0[1]..self.0[2]).contains(&now_ms)
    }
}
