//! The windows of a unit in a time zone, by the rules of the zone.
//!
//! All times in here are whole seconds since the Unix epoch. A window begins at the first instant of a date, so the
//! dates are what is stepped through: local time may repeat an hour, or skip a day, and dates only count up. What
//! begins at the same instant as the next is no window.

use jiff::civil::{Date, Weekday};
use jiff::tz::{AmbiguousOffset, Offset};
use jiff::{Timestamp, ToSpan};

use super::{Around, Unit, Zoned};

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;

impl Zoned {
    /// The window that a time is in, and those around it; `None` beyond the years that jiff has.
    pub(super) fn found_around(&self, now_ms: u64) -> Option<Around> {
        let (start, end) = self.found_at(i64::try_from(now_ms / 1_000).ok()?)?;
        let times = [self.found_at(start - 1)?.0, start, end, self.found_at(end)?.1];
        // Windows may begin before the epoch, and end after it.
        Some(Around(times.map(|time| u64::try_from(time).unwrap_or(0) * 1_000)))
    }

    fn found_at(&self, now: i64) -> Option<(i64, i64)> {
        if self.unit == Unit::Hour { self.hour_at(now) } else { self.dates_at(now) }
    }

    /// Returns the window of whole dates that a time is in.
    fn dates_at(&self, now: i64) -> Option<(i64, i64)> {
        let mut date = self.first(self.rules.to_datetime(Timestamp::from_second(now).ok()?).date())?;
        while self.start(date)? > now {
            date = self.first(date.yesterday().ok()?)?;
        }
        loop {
            let next = self.next(date)?;
            let end = self.start(next)?;
            if end > now {
                return Some((self.start(date)?, end));
            }
            date = next;
        }
    }

    /// Returns the first date of the window that a date is in.
    fn first(&self, date: Date) -> Option<Date> {
        match self.unit {
            Unit::Hour | Unit::Day => Some(date),
            Unit::Week(anchor) => {
                let anchor = Weekday::from_monday_one_offset(i8::try_from(anchor).ok()?).ok()?;
                date.checked_sub(anchor.until(date.weekday()).days()).ok()
            }
            Unit::Month(anchor) => {
                let first = anchored(date, anchor)?;
                if first <= date { Some(first) } else { anchored(date.first_of_month().yesterday().ok()?, anchor) }
            }
        }
    }

    /// Returns the first date of the window after that which begins with a date.
    fn next(&self, first: Date) -> Option<Date> {
        match self.unit {
            Unit::Hour | Unit::Day => first.tomorrow().ok(),
            Unit::Week(_) => first.checked_add(7.days()).ok(),
            Unit::Month(anchor) => anchored(first.last_of_month().tomorrow().ok()?, anchor),
        }
    }

    /// Returns the first instant of a date: midnight, the first of two, or when clocks have skipped it.
    fn start(&self, date: Date) -> Option<i64> {
        let midnight = date.at(0, 0, 0, 0);
        let at = |offset: Offset| offset.to_timestamp(midnight).ok();
        let start = match self.rules.to_ambiguous_timestamp(midnight).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(offset)?,
            AmbiguousOffset::Fold { before, .. } => at(before)?,
            AmbiguousOffset::Gap { before, .. } => {
                let after = Timestamp::from_second(at(before)?.as_second() + 1).ok()?;
                self.rules.preceding(after).next()?.timestamp()
            }
        };
        Some(minute(start.as_second()))
    }

    /// Returns the full hour of local time that a time is in, cut where clocks change by a part of an hour.
    fn hour_at(&self, now: i64) -> Option<(i64, i64)> {
        let start = now - (now + self.offset(now)?).rem_euclid(HOUR);
        let cuts = |time: i64| Some((self.offset(time)? - self.offset(time - MINUTE)?) % HOUR != 0);
        let (mut start, mut end) = (start, start + HOUR);
        let just_after = Timestamp::from_second(now + 1).ok()?;
        for change in self.rules.preceding(just_after).map(|change| minute(change.timestamp().as_second())) {
            if change <= start {
                break;
            }
            if cuts(change)? {
                start = change;
            }
        }
        for change in self.rules.following(just_after).map(|change| minute(change.timestamp().as_second())) {
            if change >= end {
                break;
            }
            if change > now && cuts(change)? {
                end = change;
            }
        }
        Some((start, end))
    }

    /// Returns how far local time is ahead of UTC, in whole minutes.
    fn offset(&self, time: i64) -> Option<i64> {
        Some(minute(self.rules.to_offset(Timestamp::from_second(time).ok()?).seconds().into()))
    }
}

/// Returns the anchor day of a date's month, or the last day of a month without it.
fn anchored(date: Date, anchor: u8) -> Option<Date> {
    let last = date.last_of_month();
    Date::new(date.year(), date.month(), i8::try_from(anchor).ok()?.min(last.day())).ok()
}

/// Returns the whole minute that a time is in. No zone had another offset than of whole minutes since 1972.
fn minute(time: i64) -> i64 {
    time - time.rem_euclid(MINUTE)
}
