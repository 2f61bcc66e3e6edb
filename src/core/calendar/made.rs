//! The calendars that this process made: each once, for as long as it lives.
//!
//! The unit and the name of a zone come in; a reference goes out, so that quotas can be copied.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use jiff::tz::TimeZone;

use super::{Calendar, Unit, Zoned};
use crate::core::Error;

/// Names in the system's folder of zones that mean another zone on each system, or none.
const NO_ZONES: [&str; 4] = ["Etc/Unknown", "Factory", "localtime", "posixrules"];

/// The last calendar that was made of each name, and how many there are.
static MADE: Mutex<(BTreeMap<&'static str, &'static Zoned>, u16)> = Mutex::new((BTreeMap::new(), 0));

/// Returns the calendar of a zone of this name, in any case of letters.
///
/// # Errors
///
/// If the system has no such zone, or there are too many calendars.
pub(super) fn of(unit: Unit, zone: &str) -> Result<Calendar, Error> {
    let found = if zone.eq_ignore_ascii_case("UTC") { Ok(TimeZone::UTC) } else { TimeZone::get(zone) };
    let found = found.map_err(|error| no_zone(zone).with_source(error))?;
    if NO_ZONES.iter().any(|other| other.eq_ignore_ascii_case(zone)) {
        return Err(no_zone(zone));
    }
    kept(unit, found)
}

/// Returns the calendar if there is one, else makes it. One by new rules of its zone is another one, and equal: its
/// counters keep their units.
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

/// Returns the error about a name that is none of a zone.
fn no_zone(name: &str) -> Error {
    let name: String = name.chars().take(60).collect();
    Error::invalid(if jiff::tz::db().is_definitively_empty() {
        format!(
            "time zone {name:?} is not known, as this system has no time zones: install tzdata, or depend on jiff with \
             its feature tzdb-bundle-always"
        )
    } else {
        format!(
            "time zone {name:?} is not known to this system: give an IANA name, such as \"Europe/Berlin\" or \"UTC\""
        )
    })
}

/// Returns the error about more calendars than a process may make, as they are never dropped.
fn too_many() -> Error {
    Error::invalid(format!(
        "this process has made {} calendars, and makes no more: use fewer zones or anchors",
        u16::MAX
    ))
}
