//! The window of a policy: a duration, or a unit of the calendar in a time zone.
//!
//! The fields `window`, `zone` and `anchor` come in, and a [`Period`] goes out. Each error is at the place of the field
//! at fault. Without the feature `calendar` a unit is an error that names it.

use std::time::Duration;

use super::document::{Field, Table};
use crate::core::{Calendar, Error, Quota};

/// The units of the calendar.
const UNITS: [&str; 4] = ["hour", "day", "week", "month"];

/// How long units count.
#[derive(Clone, Copy)]
pub(super) enum Period {
    /// For so long, as the algorithm says.
    Length(Duration),
    /// Until the window of a calendar ends.
    Calendar(Calendar),
}

impl Period {
    /// Returns the period of a quota.
    pub(super) fn of(quota: &Quota) -> Self {
        quota.calendar().map_or_else(|| Self::Length(quota.window()), Self::Calendar)
    }
}

/// Reads the period of a `window`; `takes_calendars` is whether the algorithm counts in windows of a calendar.
pub(super) fn read_period(window: Field<'_>, table: Table<'_>, takes_calendars: bool) -> Result<Period, Error> {
    let Some(unit) = window.as_text().filter(|text| UNITS.contains(text)) else {
        refuse_calendar(table)?;
        return window.period().map(Period::Length);
    };
    if !takes_calendars {
        let message = format!("window {unit:?} is for a fixed_window only: give a duration, such as \"1h\" or \"30d\"");
        return Err(window.error(message));
    }
    read_calendar(unit, window, table).map(Period::Calendar)
}

/// Refuses the fields of a calendar where the window is none.
pub(super) fn refuse_calendar(table: Table<'_>) -> Result<(), Error> {
    let wrong = |field: Field<'_>| {
        let advice = "give one of these as window, or leave it out";
        field.error(format!("{} is for a window of \"hour\", \"day\", \"week\" or \"month\": {advice}", field.name))
    };
    match (table.get("zone"), table.get("anchor")) {
        (Some(zone), _) => Err(zone.text().map_or_else(|error| error, |_| wrong(zone))),
        (None, Some(anchor)) => Err(anchor.whole().map_or_else(|error| error, |_| wrong(anchor))),
        (None, None) => Ok(()),
    }
}

/// Reads the zone, UTC if none is given, and the anchor.
#[cfg(feature = "calendar")]
fn read_calendar(unit: &str, _: Field<'_>, table: Table<'_>) -> Result<Calendar, Error> {
    let make = match unit {
        "hour" => Calendar::hourly,
        "day" => Calendar::daily,
        "week" => Calendar::weekly,
        _ => Calendar::monthly,
    };
    let calendar = match table.get("zone") {
        Some(zone) => make(zone.text()?).map_err(|error| zone.error(error))?,
        None => make("UTC")?,
    };
    match table.get("anchor") {
        Some(day) => calendar.anchored(day.whole()?).map_err(|error| day.error(error)),
        None => Ok(calendar),
    }
}

#[cfg(not(feature = "calendar"))]
fn read_calendar(unit: &str, window: Field<'_>, _: Table<'_>) -> Result<Calendar, Error> {
    Err(window.error(format!("window {unit:?} needs the feature calendar: turn it on")))
}

#[cfg(all(test, not(feature = "calendar")))]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_window_whose_feature_is_off_is_an_error_that_names_the_feature() {
        for name in ["hour", "day", "week", "month"] {
            let text =
                format!("[[policy]]\nname = \"a\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"{name}\"\n");
            let error = Config::from_toml(&text).expect_err("there is no calendar in this build");
            let named = format!("line 5: window {name:?} needs the feature calendar: turn it on");
            assert!(error.is_invalid() && error.to_string().starts_with(&named), "{error}");
        }
    }
}
