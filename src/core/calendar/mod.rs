//! Calendar windows of a quota: hours, days, weeks and months of a time zone.
//!
//! The zone is read when a [`Calendar`] is made, and kept as long as the process lives, so decisions read no file.
//! `zoned.rs` has the arithmetic and keeps the calendars. Without the feature `calendar` no calendar can be made.

#![cfg_attr(not(feature = "calendar"), allow(dead_code, reason = "without the feature no calendar is made"))]

#[cfg(all(test, feature = "calendar"))]
mod tests;
mod window;
#[cfg(feature = "calendar")]
mod zoned;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
#[cfg(feature = "calendar")]
use jiff::tz::TimeZone;

pub(crate) use self::window::{Around, Unit, Window};
#[cfg(feature = "calendar")]
use crate::core::Error;
#[cfg(feature = "calendar")]
use crate::core::error::built;

/// A unit of the calendar in a time zone: the window of a [`Quota::calendar_window`](crate::Quota::calendar_window).
///
/// | unit | begins |
/// | --- | --- |
/// | [`hourly`](Self::hourly) | with each full hour of local time |
/// | [`daily`](Self::daily) | at midnight, or at the first instant of the date if clocks skip midnight |
/// | [`weekly`](Self::weekly) | on Monday, or on the [`anchor`](Self::anchor) day, from 1 for Monday to 7 for Sunday |
/// | [`monthly`](Self::monthly) | on the 1st, or on the [`anchor`](Self::anchor) day; in a month without it, on the last day |
///
/// A day on which clocks are set forward has 23 hours, and a day on which they are set back 25. A month from the 31st
/// begins on January 31, on February 28 or 29, and on March 31 again.
///
/// Zones are those of the IANA database, such as `Europe/Berlin` or `UTC`, in the system's version (in `TZDIR`, or
/// `/usr/share/zoneinfo`). If a system has none, such as a small container image, a program may depend on the jiff
/// crate with the feature `tzdb-bundle-always`. If the rules of a zone change while the process runs, they are read
/// when a calendar of the zone is made again, such as by a reloaded file.
///
/// A calendar is cheap to copy. The process keeps each distinct calendar that it made, and makes at most 65,535, which
/// is enough for each day of the month in each zone.
///
/// # Examples
///
#[cfg_attr(feature = "calendar", doc = "```")]
#[cfg_attr(not(feature = "calendar"), doc = "```compile_fail,E0432")]
/// use tollgate::policy::Calendar;
/// use tollgate::Quota;
///
/// // A customer's billing period, from the day the contract began.
/// let billing = Calendar::monthly("Europe/Berlin")?.anchor(31);
/// let quota = Quota::calendar_window(100_000, billing);
/// assert_eq!(quota.calendar(), Some(billing));
/// assert!(Calendar::daily("Europe/Berlim").is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Calendar(&'static Zoned);

struct Zoned {
    unit: Unit,
    #[cfg(feature = "calendar")]
    rules: TimeZone,
    name: Box<str>,
    number: u64,
    last: ArcSwapOption<Around>,
}

#[cfg(feature = "calendar")]
#[cfg_attr(docsrs, doc(cfg(feature = "calendar")))]
impl Calendar {
    /// The hours of a time zone.
    ///
    /// If its clocks change by a part of an hour, the window ends there.
    ///
    /// # Errors
    ///
    /// If the system has no such zone, or the process has made 65,535 calendars.
    pub fn hourly(zone: &str) -> Result<Self, Error> {
        zoned::calendar(Unit::Hour, zone)
    }

    /// The days of a time zone.
    ///
    /// # Errors
    ///
    /// If the system has no such zone, or the process has made 65,535 calendars.
    pub fn daily(zone: &str) -> Result<Self, Error> {
        zoned::calendar(Unit::Day, zone)
    }

    /// The weeks of a time zone, from Monday.
    ///
    /// # Errors
    ///
    /// If the system has no such zone, or the process has made 65,535 calendars.
    pub fn weekly(zone: &str) -> Result<Self, Error> {
        zoned::calendar(Unit::Week(1), zone)
    }

    /// The months of a time zone, from the 1st.
    ///
    /// # Errors
    ///
    /// If the system has no such zone, or the process has made 65,535 calendars.
    pub fn monthly(zone: &str) -> Result<Self, Error> {
        zoned::calendar(Unit::Month(1), zone)
    }

    /// Sets the day on which weeks begin, 1 (Monday) to 7 (Sunday), or months, 1 to 31.
    ///
    /// # Panics
    ///
    /// If [`try_anchor`](Self::try_anchor) returns an error.
    #[track_caller]
    pub fn anchor(self, day: u8) -> Self {
        built(self.try_anchor(day))
    }

    /// Fallible version of [`anchor`](Self::anchor).
    ///
    /// # Errors
    ///
    /// If there is no such day, the unit is an hour or a day, or the process has made 65,535 calendars.
    pub fn try_anchor(self, day: u8) -> Result<Self, Error> {
        zoned::kept(self.0.unit.anchored(day)?, self.0.rules.clone())
    }
}

impl Calendar {
    /// Returns the name of the time zone.
    pub fn zone(&self) -> &str {
        self.0.name.split_once('@').map_or("", |(_, zone)| zone)
    }

    pub(crate) fn name(self) -> &'static str {
        &self.0.name
    }

    /// Longest window without a change of clocks, in milliseconds.
    pub(crate) fn usual_ms(self) -> u64 {
        self.0.unit.usual_ms()
    }

    #[inline]
    pub(crate) fn window_at(self, now_ms: u64) -> Window {
        let last = self.0.last.load().as_deref().and_then(|last| last.window_at(now_ms));
        last.unwrap_or_else(|| {
            let [_, start, end, _] = self.around(now_ms).0;
            Window { start, end }
        })
    }

    pub(crate) fn around(self, now_ms: u64) -> Around {
        if let Some(last) = self.0.last.load().as_deref()
            && last.is_around(now_ms)
        {
            return *last;
        }
        #[cfg(feature = "calendar")]
        let around = self.0.found_around(now_ms).unwrap_or_else(|| Around::aligned(self.usual_ms(), now_ms));
        #[cfg(not(feature = "calendar"))]
        let around = Around::aligned(self.usual_ms(), now_ms);
        self.0.last.store(Some(Arc::new(around)));
        around
    }

    /// Milliseconds. `end_ms` must be the end of a window.
    pub(crate) fn length_until(self, end_ms: u64) -> u64 {
        self.window_at(end_ms.saturating_sub(1)).length()
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.number.hash(state);
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({})", self.name())
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.0.unit;
        f.write_str(unit.name())?;
        match unit {
            Unit::Hour | Unit::Day => {}
            Unit::Week(anchor) | Unit::Month(anchor) => write!(f, " from day {anchor}")?,
        }
        write!(f, " in {}", self.zone())
    }
}
