//! Calendars that this process made, each kept once for as long as it lives, and their windows by the rules of the
//! zone.
//!
//! Times here are whole seconds since the Unix epoch. A window begins at the first instant of a date, and the search
//! steps through dates, because local time may repeat an hour or skip a day. A window that begins at the same instant
//! as the next one does not exist.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use jiff::civil::{Date, Weekday};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::{Around, Calendar, Unit, Zoned};
use crate::core::Error;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;

/// Names in the system's zone folder that mean another zone on each system, or none.
const NO_ZONES: [&str; 4] = ["Etc/Unknown", "Factory", "localtime", "posixrules"];

static MADE: Mutex<(BTreeMap<&'static str, &'static Zoned>, u16)> = Mutex::new((BTreeMap::new(), 0));

pub(super) fn calendar(unit: Unit, zone: &str) -> Result<Calendar, Error> {
    let found = if zone.eq_ignore_ascii_case("UTC") { Ok(TimeZone::UTC) } else { TimeZone::get(zone) };
    let found = found.map_err(|error| no_zone(zone).with_source(error))?;
    if NO_ZONES.iter().any(|other| other.eq_ignore_ascii_case(zone)) {
        return Err(no_zone(zone));
    }
    kept(unit, found)
}

/// Returns the existing calendar, or makes it. A calendar with new rules of its zone is a different one that compares
/// equal, so its counters keep their units.
pub(super) fn kept(unit: Unit, rules: TimeZone) -> Result<Calendar, Error> {
    let anchor = match unit {
        Unit::Hour | Unit::Day => String::new(),
        Unit::Week(anchor) | Unit::Month(anchor) => anchor.to_string(),
    };
    let name = format!("{}{anchor}@{}", unit.name(), rules.iana_name().unwrap_or("UTC")).into_boxed_str();
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let (names, count) = &mut *made;
    let same = names.get(&*name).copied();
    if let Some(same) = same.filter(|same| same.rules == rules) {
        return Ok(Calendar(same));
    }
    *count = count.checked_add(1).ok_or_else(too_many)?;
    let number = same.map_or(u64::from(*count), |same| same.number);
    let zoned: &'static Zoned = Box::leak(Box::new(Zoned { unit, rules, name, number, last: ArcSwapOption::empty() }));
    names.insert(&zoned.name, zoned);
    Ok(Calendar(zoned))
}

fn no_zone(name: &str) -> Error {
    let name: String = name.chars().take(60).collect();
    Error::invalid(if jiff::tz::db().is_definitively_empty() {
        format!(
            "time zone {name:?} is not known, as this system has no time zones: install tzdata, or depend on jiff with \
             its feature tzdb-bundle-always"
        )
    } else {
        format!(
            "time zone {name:?} is not known to this system: use an IANA name, such as \"Europe/Berlin\" or \"UTC\""
        )
    })
}

fn too_many() -> Error {
    Error::invalid(format!(
        "this process has made {} calendars, and makes no more: use fewer zones or anchors",
        u16::MAX
    ))
}

impl Zoned {
    /// Returns `None` beyond the years that jiff supports.
    pub(super) fn found_around(&self, now_ms: u64) -> Option<Around> {
        let (start, end) = self.found_at(i64::try_from(now_ms / 1_000).ok()?)?;
        let times = [self.found_at(start - 1)?.0, start, end, self.found_at(end)?.1];
        // Windows may begin before the epoch, and end after it.
        Some(Around(times.map(|time| u64::try_from(time).unwrap_or(0) * 1_000)))
    }

    fn found_at(&self, now: i64) -> Option<(i64, i64)> {
        if self.unit == Unit::Hour { self.hour_at(now) } else { self.dates_at(now) }
    }

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

    fn next(&self, first: Date) -> Option<Date> {
        match self.unit {
            Unit::Hour | Unit::Day => first.tomorrow().ok(),
            Unit::Week(_) => first.checked_add(7.days()).ok(),
            Unit::Month(anchor) => anchored(first.last_of_month().tomorrow().ok()?, anchor),
        }
    }

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

    fn offset(&self, time: i64) -> Option<i64> {
        Some(minute(self.rules.to_offset(Timestamp::from_second(time).ok()?).seconds().into()))
    }
}

fn anchored(date: Date, anchor: u8) -> Option<Date> {
    let last = date.last_of_month();
    Date::new(date.year(), date.month(), i8::try_from(anchor).ok()?.min(last.day())).ok()
}

/// Start of the minute. All zones have had offsets of whole minutes since 1972.
fn minute(time: i64) -> i64 {
    time - time.rem_euclid(MINUTE)
}
