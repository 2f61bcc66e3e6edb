//! Tables of windows of a calendar.
//!
//! All changes of clocks in here are those of 2024, which no new rules will change. Clocks start on 2024-01-18, a
//! Thursday.

use super::case::Case;
use super::rows::{DAY, EPOCH_US, MS, S, adjusts, admits, denies, never, settles};
use super::subject::{Checked, Stop, Subject};
use crate::core::{Calendar, Error, Quota};
use crate::store::Change::{Charge, Refund};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    calendar_window,
    months_days_weeks_and_hours_are_as_long_as_they_are,
    another_unit_anchor_or_zone_starts_anew,
];

const HOUR: u64 = 3_600 * S;

/// When the month of [`billing`] ends first: on January 31, in Berlin.
const JANUARY_31: u64 = unix(1_706_655_600);

/// When clocks go forward in Berlin, in the night after it begins: on March 31.
const MARCH_31: u64 = unix(1_711_839_600);

/// A time in seconds since the Unix epoch, as cases count it.
const fn unix(seconds: u64) -> u64 {
    seconds * S - EPOCH_US
}

/// Calendars of the one zone that every system has.
pub(super) fn in_utc() -> impl Iterator<Item = Calendar> {
    [Calendar::hourly("UTC"), Calendar::daily("UTC"), Calendar::monthly("UTC")].into_iter().flatten()
}

/// A quota of a calendar. On a system that does not have its zone the case is left out.
fn quota(limit: u64, calendar: Result<Calendar, Error>) -> Result<Quota, Stop> {
    let calendar = calendar.map_err(|error| Stop::Unsupported(error.to_string()))?;
    Ok(Quota::calendar_window(limit, calendar))
}

fn billing() -> Result<Quota, Stop> {
    quota(5, Calendar::monthly("Europe/Berlin").and_then(|month| month.anchor(31)))
}

async fn calendar_window(on: &Subject) -> Checked {
    let rows = [
        never(0, 6, 5, 0),
        admits(0, 2, 1, DAY).floor(2),
        denies(0, 2, 1, DAY, DAY).floor(2),
        settles(HOUR, 1, Refund(9), 2),
        admits(HOUR, 1, 4, 23 * HOUR),
        adjusts(HOUR, Charge(99), 9),
        adjusts(HOUR, Refund(5), 5),
        denies(HOUR, 1, 0, 23 * HOUR, 23 * HOUR),
        admits(10 * DAY + HOUR, 4, 1, 23 * HOUR),
        settles(10 * DAY + HOUR, 3, Refund(1), 0),
        // The clock steps back.
        denies(8 * DAY, 2, 1, 3 * DAY, 3 * DAY),
        // Further ahead, it counts as new.
        admits(8 * DAY - MS, 1, 4, MS),
        admits(8 * DAY, 1, 2, DAY).by(quota(3, Calendar::daily("UTC"))?),
        admits(8 * DAY, 1, 3, DAY),
    ];
    on.table(quota(5, Calendar::daily("UTC"))?, &rows).await
}

async fn months_days_weeks_and_hours_are_as_long_as_they_are(on: &Subject) -> Checked {
    // A month from the 31st begins on the last day of shorter months.
    let february_29 = JANUARY_31 + 29 * DAY;
    let rows = [
        admits(0, 5, 0, JANUARY_31),
        admits(JANUARY_31, 5, 0, 29 * DAY),
        denies(february_29 - 1, 1, 0, MS, MS),
        admits(february_29, 1, 4, 31 * DAY),
        admits(MARCH_31, 5, 0, 30 * DAY - HOUR),
        admits(unix(1_738_278_000), 5, 0, 28 * DAY),
    ];
    on.table(billing()?, &rows).await?;
    // Clocks go forward, and back.
    let (forward, back) = (MARCH_31, unix(1_729_980_000));
    let rows = [admits(forward - S, 5, 0, S), admits(forward, 5, 0, 23 * HOUR), admits(back, 5, 0, 25 * HOUR)];
    on.table(quota(5, Calendar::daily("Europe/Berlin"))?, &rows).await?;
    let start = unix(1_711_321_200);
    let rows = [admits(start, 5, 0, 167 * HOUR), admits(start + 167 * HOUR, 5, 0, 168 * HOUR)];
    on.table(quota(5, Calendar::weekly("Europe/Berlin"))?, &rows).await?;
    let (sunday, sundays) = (unix(1_705_795_200), Calendar::weekly("UTC").and_then(|week| week.anchor(7)));
    on.table(quota(5, sundays)?, &[admits(sunday, 5, 0, 7 * DAY)]).await?;
    on.table(quota(5, Calendar::weekly("UTC"))?, &[admits(sunday, 5, 0, DAY)]).await?;
    on.table(quota(5, Calendar::hourly("Asia/Kolkata"))?, &[admits(0, 5, 0, HOUR / 2)]).await?;
    // From 02:00 back to 01:30: the half hour until 02:00 has a window of its own.
    let back = unix(1_712_415_600);
    let rows = [admits(back - HOUR, 5, 0, HOUR), admits(back, 5, 0, HOUR / 2), admits(back + HOUR / 2, 5, 0, HOUR)];
    on.table(quota(5, Calendar::hourly("Australia/Lord_Howe"))?, &rows).await
}

async fn another_unit_anchor_or_zone_starts_anew(on: &Subject) -> Checked {
    on.at(0)?;
    let month = |anchor, zone| quota(5, Calendar::monthly(zone).and_then(|month| month.anchor(anchor)));
    let first = month(31, "Europe/Berlin")?;
    let others = [month(30, "Europe/Berlin")?, month(31, "Europe/Paris")?, quota(5, Calendar::daily("Europe/Berlin"))?];
    let checks = others.into_iter().chain([first, Quota::fixed_window(5, first.window())]);
    let checks: Vec<_> = checks.map(|quota| on.check(quota, 4)).collect();
    let decision = on.decide(&checks).await?.decision;
    on.holds(decision.outcomes().iter().all(|outcome| outcome.remaining() == 1), || format!("apart: {decision:?}"));
    Ok(())
}
