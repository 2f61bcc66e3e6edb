//! The calendars that this process made: each once, for as long as it lives.
//!
//! The unit and the name of a zone come in; a number of 16 bits goes out, which finds the calendar. It takes no room in
//! quotas, of which each outcome has one, and quotas can be copied.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::tz::TimeZone;

use super::window::Unit;
use super::zoned::{Name, Zoned};
use crate::core::Error;

/// Names in the system's folder of zones that mean another zone on each system, or none.
const NO_ZONES: [&str; 4] = ["Etc/Unknown", "Factory", "localtime", "posixrules"];

/// Calendars of a part of the table.
const PART: usize = 256;

/// A part of the table, which is made when it is needed.
type Part = Box<[OnceLock<&'static Zoned>]>;

/// All calendars, by their places.
static TABLE: [OnceLock<Part>; PART] = [const { OnceLock::new() }; PART];

/// The last calendar that was made of each name, and how many there are.
static MADE: Mutex<(BTreeMap<&'static str, Made>, u16)> = Mutex::new((BTreeMap::new(), 0));

/// A calendar: its place in the table, from 1.
#[derive(Clone, Copy)]
pub(super) struct Made(NonZeroU16);

impl Made {
    /// Returns the calendar of a zone of this name, in any case of letters.
    ///
    /// # Errors
    ///
    /// If the system has no such zone, or there are too many calendars.
    pub(super) fn of(unit: Unit, zone: &str) -> Result<Self, Error> {
        let found = if zone.eq_ignore_ascii_case("UTC") { Ok(TimeZone::UTC) } else { TimeZone::get(zone) };
        let found = found.map_err(|error| no_zone(zone).with_source(error))?;
        if NO_ZONES.iter().any(|other| other.eq_ignore_ascii_case(zone)) {
            return Err(no_zone(zone));
        }
        Self::kept(unit, found)
    }

    /// Returns another unit of the same zone.
    pub(super) fn with_unit(self, unit: Unit) -> Result<Self, Error> {
        Self::kept(unit, self.zoned().rules().clone())
    }

    /// Returns the calendar.
    #[inline]
    pub(super) fn zoned(self) -> &'static Zoned {
        let place = usize::from(self.0.get());
        let part = TABLE[place / PART].get();
        part.and_then(|part| part[place % PART].get()).expect("a calendar has its place before its number is known")
    }

    /// Returns the calendar if there is one, else makes it. One by new rules of its zone is another one, and equal: its
    /// counters keep their units.
    fn kept(unit: Unit, zone: TimeZone) -> Result<Self, Error> {
        let name = Name::of(unit, zone.iana_name().unwrap_or("UTC"));
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let (names, count) = &mut *made;
        let same = names.get(name.as_str()).copied();
        if let Some(same) = same
            && same.zoned().has_rules_of(&zone)
        {
            return Ok(same);
        }
        let place = count.checked_add(1).and_then(NonZeroU16::new).ok_or_else(too_many)?;
        let number = same.map_or(place.get().into(), |same| same.zoned().number());
        let zoned: &'static Zoned = Box::leak(Box::new(Zoned::new(unit, zone, name, number)));
        let index = usize::from(place.get());
        let part = TABLE[index / PART].get_or_init(|| (0..PART).map(|_| OnceLock::new()).collect());
        part[index % PART].get_or_init(|| zoned);
        names.insert(zoned.name(), Self(place));
        *count = place.get();
        Ok(Self(place))
    }
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

/// Returns the error about a calendar beyond the table.
fn too_many() -> Error {
    Error::invalid(format!(
        "this process has made {} calendars, and makes no more: use fewer zones or anchors",
        u16::MAX
    ))
}
