//! Tables of calendar windows.
//!
//! All changes of clocks are from 2024, which no new rules will change. Clocks start on 2024-01-18, a Thursday.

use tollgate::policy::Calendar;
use tollgate::store::Change::{Charge, Refund};
use tollgate::{Error, Quota};

use super::rows::{DAY, EPOCH_US, MS, Row, S, Table, adjusts, admits, denies, never, settles, table};

const HOUR: u64 = 3_600 * S;

/// First end of the month of [`billing`]: January 31, in Berlin.
const JANUARY_31: u64 = unix(1_706_655_600);

/// Start of the day whose night has the change to summer time in Berlin: March 31.
const MARCH_31: u64 = unix(1_711_839_600);

const fn unix(seconds: u64) -> u64 {
    seconds * S - EPOCH_US
}

pub(super) fn in_utc() -> impl Iterator<Item = Calendar> {
    [Calendar::hourly("UTC"), Calendar::daily("UTC"), Calendar::monthly("UTC")].into_iter().flatten()
}

/// # Errors
///
/// If the system does not have one of the zones.
pub(super) fn all() -> Result<Vec<Table>, Error> {
    let windows = |name, calendar: Calendar, rows: &[Row]| table(name, Quota::calendar_window(5, calendar), rows);
    let billing = Calendar::monthly("Europe/Berlin")?.anchor(31);
    let days = [
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
        admits(8 * DAY, 1, 2, DAY).by(Quota::calendar_window(3, Calendar::daily("UTC")?)),
        admits(8 * DAY, 1, 3, DAY),
    ];
    // A month from the 31st begins on the last day of shorter months.
    let february_29 = JANUARY_31 + 29 * DAY;
    let months = [
        admits(0, 5, 0, JANUARY_31),
        admits(JANUARY_31, 5, 0, 29 * DAY),
        denies(february_29 - 1, 1, 0, MS, MS),
        admits(february_29, 1, 4, 31 * DAY),
        admits(MARCH_31, 5, 0, 30 * DAY - HOUR),
        admits(unix(1_738_278_000), 5, 0, 28 * DAY),
    ];
    // Clocks go forward, and back.
    let (forward, back) = (MARCH_31, unix(1_729_980_000));
    let clocks = [admits(forward - S, 5, 0, S), admits(forward, 5, 0, 23 * HOUR), admits(back, 5, 0, 25 * HOUR)];
    let (start, sunday) = (unix(1_711_321_200), unix(1_705_795_200));
    let weeks = [admits(start, 5, 0, 167 * HOUR), admits(start + 167 * HOUR, 5, 0, 168 * HOUR)];
    // From 02:00 back to 01:30: the half hour until 02:00 has its own window.
    let half = unix(1_712_415_600);
    let hours = [admits(half - HOUR, 5, 0, HOUR), admits(half, 5, 0, HOUR / 2), admits(half + HOUR / 2, 5, 0, HOUR)];
    // Another unit, anchor or zone has another counter.
    let apart = [
        admits(0, 4, 1, JANUARY_31),
        admits(0, 4, 1, JANUARY_31 - DAY).by(Quota::calendar_window(5, billing.anchor(30))),
        admits(0, 4, 1, JANUARY_31).by(Quota::calendar_window(5, Calendar::monthly("Europe/Paris")?.anchor(31))),
        admits(0, 4, 1, 23 * HOUR).by(Quota::calendar_window(5, Calendar::daily("Europe/Berlin")?)),
        admits(0, 4, 1, 7 * DAY).by(Quota::fixed_window(5, Quota::calendar_window(5, billing).window())),
    ];
    Ok(vec![
        windows("calendar_window", Calendar::daily("UTC")?, &days),
        windows("months_are_as_long_as_they_are", billing, &months),
        windows("days_are_as_long_as_they_are", Calendar::daily("Europe/Berlin")?, &clocks),
        windows("weeks_are_as_long_as_they_are", Calendar::weekly("Europe/Berlin")?, &weeks),
        windows("weeks_begin_on_sundays", Calendar::weekly("UTC")?.anchor(7), &[admits(sunday, 5, 0, 7 * DAY)]),
        windows("weeks_begin_on_mondays", Calendar::weekly("UTC")?, &[admits(sunday, 5, 0, DAY)]),
        windows("hours_of_half_a_zone", Calendar::hourly("Asia/Kolkata")?, &[admits(0, 5, 0, HOUR / 2)]),
        windows("hours_are_as_long_as_they_are", Calendar::hourly("Australia/Lord_Howe")?, &hours),
        windows("another_unit_anchor_or_zone_starts_anew", billing, &apart),
    ])
}
