//! The answers of the calendar window.
//!
//! All changes of clocks in here are those of 2024, which no new rules will change. Clocks start on 2024-01-18, a
//! Thursday.

use super::case::Case;
use super::rows::{DAY, EPOCH_US, MS, S, admits, denies, never, us};
use super::subject::{Checked, Stop, Subject};
use crate::core::{Calendar, Error, Outcome, Quota};
use crate::store::Change::{Charge, Refund};
use crate::store::{Check, Mode};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    a_month_from_the_31st_begins_on_the_last_day_of_shorter_months,
    a_day_on_which_clocks_change_is_as_long_as_it_is,
    a_week_in_which_clocks_go_forward_is_an_hour_shorter,
    an_hour_begins_when_the_clocks_of_its_zone_say_so,
    an_hour_ends_where_clocks_change_by_half_an_hour,
    a_calendar_window_answers_every_cost_and_leaves_its_floor,
    a_calendar_window_is_not_opened_by_a_clock_that_steps_back,
    the_largest_limit_of_a_calendar_window_is_counted_to_the_unit,
    a_calendar_window_keeps_its_count_when_the_limit_changes,
    another_unit_anchor_or_zone_starts_anew,
    a_calendar_window_is_refunded_while_it_lasts,
    a_calendar_window_is_charged_at_most_one_limit_more_until_it_ends,
    calendar_windows_are_decided_with_others_all_or_nothing,
    the_window_of_an_outcome_is_the_one_that_counts,
];

const HOUR: u64 = 3_600 * S;

/// A time in seconds since the Unix epoch, as cases count it.
const fn unix(seconds: u64) -> u64 {
    seconds * S - EPOCH_US
}

/// A quota of a calendar. On a system that does not have its zone the case is left out.
fn quota(limit: u64, calendar: Result<Calendar, Error>) -> Result<Quota, Stop> {
    let calendar = calendar.map_err(|error| Stop::Unsupported(error.to_string()))?;
    Ok(Quota::calendar_window(limit, calendar))
}

fn billing() -> Result<Quota, Stop> {
    quota(5, Calendar::monthly("Europe/Berlin").and_then(|month| month.anchor(31)))
}

/// When that month ends first: on January 31, in Berlin.
const JANUARY_31: u64 = unix(1_706_655_600);

/// When clocks go forward in Berlin, in the night after it begins: on March 31.
const MARCH_31: u64 = unix(1_711_839_600);

async fn a_month_from_the_31st_begins_on_the_last_day_of_shorter_months(on: &Subject) -> Checked {
    let february_29 = JANUARY_31 + 29 * DAY;
    let april_30 = MARCH_31 + 30 * DAY - HOUR;
    let january_2025 = unix(1_738_278_000);
    let rows = [
        admits(0, 5, 0, JANUARY_31),
        denies(JANUARY_31 - S, 1, 0, S, S),
        admits(JANUARY_31, 5, 0, 29 * DAY),
        denies(february_29 - 1, 1, 0, MS, MS),
        admits(february_29, 1, 4, 31 * DAY),
        denies(MARCH_31 - 1, 5, 4, MS, MS),
        admits(MARCH_31, 5, 0, 30 * DAY - HOUR),
        admits(april_30, 5, 0, 31 * DAY),
        denies(april_30 + DAY, 1, 0, 30 * DAY, 30 * DAY),
        admits(january_2025, 5, 0, 28 * DAY),
        admits(january_2025 + 28 * DAY, 1, 4, 31 * DAY - HOUR),
    ];
    on.table(billing()?, &rows).await
}

async fn a_day_on_which_clocks_change_is_as_long_as_it_is(on: &Subject) -> Checked {
    let (forward, back) = (MARCH_31, unix(1_729_980_000));
    let rows = [
        admits(forward - S, 5, 0, S),
        admits(forward, 5, 0, 23 * HOUR),
        denies(forward + HOUR, 1, 0, 22 * HOUR, 22 * HOUR),
        admits(forward + 23 * HOUR, 5, 0, DAY),
        admits(back, 5, 0, 25 * HOUR),
        denies(back + 25 * HOUR - MS, 1, 0, MS, MS),
        admits(back + 25 * HOUR, 5, 0, DAY),
    ];
    on.table(quota(5, Calendar::daily("Europe/Berlin"))?, &rows).await
}

async fn a_week_in_which_clocks_go_forward_is_an_hour_shorter(on: &Subject) -> Checked {
    let start = unix(1_711_321_200);
    let rows = [admits(start, 5, 0, 167 * HOUR), admits(start + 167 * HOUR, 5, 0, 168 * HOUR)];
    on.table(quota(5, Calendar::weekly("Europe/Berlin"))?, &rows).await?;
    let sunday = unix(1_705_795_200);
    let sundays = Calendar::weekly("UTC").and_then(|week| week.anchor(7));
    on.table(quota(5, sundays)?, &[admits(sunday, 5, 0, 7 * DAY), denies(sunday + 7 * DAY - 1, 1, 0, MS, MS)]).await?;
    on.table(quota(5, Calendar::weekly("UTC"))?, &[admits(sunday, 5, 0, DAY), admits(sunday + DAY, 5, 0, 7 * DAY)])
        .await
}

async fn an_hour_begins_when_the_clocks_of_its_zone_say_so(on: &Subject) -> Checked {
    let rows = [admits(0, 5, 0, HOUR / 2), admits(HOUR / 2, 5, 0, HOUR), denies(HOUR, 1, 0, HOUR / 2, HOUR / 2)];
    on.table(quota(5, Calendar::hourly("Asia/Kolkata"))?, &rows).await?;
    on.table(quota(5, Calendar::hourly("UTC"))?, &[admits(0, 5, 0, HOUR), admits(HOUR, 5, 0, HOUR)]).await
}

async fn an_hour_ends_where_clocks_change_by_half_an_hour(on: &Subject) -> Checked {
    // From 02:00 back to 01:30: the half hour until 02:00 has a window of its own.
    let back = unix(1_712_415_600);
    let rows = [
        admits(back - HOUR, 5, 0, HOUR),
        admits(back, 5, 0, HOUR / 2),
        denies(back + HOUR / 2 - MS, 1, 0, MS, MS),
        admits(back + HOUR / 2, 5, 0, HOUR),
    ];
    on.table(quota(5, Calendar::hourly("Australia/Lord_Howe"))?, &rows).await
}

async fn a_calendar_window_answers_every_cost_and_leaves_its_floor(on: &Subject) -> Checked {
    let day = quota(5, Calendar::daily("UTC"))?;
    let rows = [
        admits(0, 0, 5, 0),
        never(0, 6, 5, 0),
        never(0, u64::MAX, 5, 0),
        admits(0, 2, 1, DAY).floor(2),
        denies(0, 2, 1, DAY, DAY).floor(2),
        never(0, 2, 0, DAY).floor(4),
        never(0, 1, 0, DAY).floor(u64::MAX),
        denies(S, 4, 3, DAY - S, DAY - S).shadow(),
        admits(S, 3, 0, DAY - S),
        admits(2 * S, 0, 0, DAY - 2 * S),
        admits(DAY, 1, 4, DAY),
    ];
    on.table(day, &rows).await
}

async fn a_calendar_window_is_not_opened_by_a_clock_that_steps_back(on: &Subject) -> Checked {
    let day = quota(5, Calendar::daily("UTC"))?;
    let rows = [
        admits(10 * DAY + HOUR, 4, 1, 23 * HOUR),
        denies(10 * DAY - HOUR, 2, 1, 25 * HOUR, 25 * HOUR),
        admits(9 * DAY, 1, 0, 2 * DAY),
        denies(9 * DAY, 1, 0, 2 * DAY, 2 * DAY),
        denies(8 * DAY, 1, 0, 3 * DAY, 3 * DAY),
        // Further ahead, it counts as new.
        admits(8 * DAY - MS, 1, 4, MS),
        admits(8 * DAY, 1, 4, DAY),
    ];
    on.table(day, &rows).await
}

async fn the_largest_limit_of_a_calendar_window_is_counted_to_the_unit(on: &Subject) -> Checked {
    let most = (1 << 49) - 1;
    let day = quota(most, Calendar::daily("UTC"))?;
    let rows =
        [admits(0, most - 1, 1, DAY), denies(0, 2, 1, DAY, DAY), admits(0, 1, 0, DAY), never(0, most + 1, 0, DAY)];
    on.table(day, &rows).await
}

async fn a_calendar_window_keeps_its_count_when_the_limit_changes(on: &Subject) -> Checked {
    let day = |limit| quota(limit, Calendar::daily("UTC"));
    on.run(day(5)?, &[admits(0, 4, 1, DAY)]).await?;
    on.run(day(2)?, &[admits(0, 0, 0, DAY), denies(0, 1, 0, DAY, DAY), never(0, 3, 0, DAY)]).await?;
    on.run(day(9)?, &[admits(0, 3, 2, DAY)]).await?;
    on.run(day(5)?, &[denies(0, 1, 0, DAY, DAY), admits(DAY, 5, 0, DAY)]).await
}

async fn another_unit_anchor_or_zone_starts_anew(on: &Subject) -> Checked {
    let month = |anchor, zone| quota(5, Calendar::monthly(zone).and_then(|month| month.anchor(anchor)));
    let first = month(31, "Europe/Berlin")?;
    let _ = on.take(0, first, 5).await?;
    let others = [
        month(30, "Europe/Berlin")?,
        month(31, "Europe/Paris")?,
        quota(5, Calendar::daily("Europe/Berlin"))?,
        quota(5, Calendar::weekly("Europe/Berlin"))?,
        quota(5, Calendar::hourly("Europe/Berlin"))?,
        Quota::fixed_window(5, first.window()),
    ];
    for other in others {
        on.remaining(0, other, 5).await?;
        let _ = on.take(0, other, 1).await?;
        on.remaining(0, other, 4).await?;
    }
    on.remaining(0, first, 0).await?;
    on.reset(first).await?;
    on.remaining(0, first, 5).await
}

async fn a_calendar_window_is_refunded_while_it_lasts(on: &Subject) -> Checked {
    let day = quota(5, Calendar::daily("UTC"))?;
    let taken = on.take(0, day, 3).await?;
    on.settle_at(DAY - S, taken, Refund(9)).await?;
    on.run(day, &[admits(HOUR, 4, 1, 23 * HOUR)]).await?;
    let late = on.take(HOUR, day, 1).await?;
    on.run(day, &[admits(DAY, 1, 4, DAY)]).await?;
    on.settle_at(DAY, late, Refund(1)).await?;
    on.run(day, &[admits(DAY, 0, 4, DAY)]).await?;
    on.adjust_at(DAY, day, Refund(9)).await?;
    on.run(day, &[admits(DAY, 5, 0, DAY)]).await
}

async fn a_calendar_window_is_charged_at_most_one_limit_more_until_it_ends(on: &Subject) -> Checked {
    let day = quota(5, Calendar::daily("UTC"))?;
    let taken = on.take(0, day, 1).await?;
    on.settle_at(HOUR, taken, Charge(u64::MAX)).await?;
    on.adjust_at(HOUR, day, Refund(5)).await?;
    on.run(day, &[denies(HOUR, 1, 0, 23 * HOUR, 23 * HOUR)]).await?;
    on.adjust_at(HOUR, day, Refund(1)).await?;
    on.run(day, &[admits(HOUR, 1, 0, 23 * HOUR)]).await?;
    on.adjust_at(HOUR, day, Charge(99)).await?;
    on.run(day, &[admits(DAY, 5, 0, DAY)]).await
}

async fn calendar_windows_are_decided_with_others_all_or_nothing(on: &Subject) -> Checked {
    on.at(0)?;
    let (month, day) = (billing()?, quota(3, Calendar::daily("UTC"))?);
    let hour = Quota::fixed_window(4, us(HOUR));
    let request = |month_cost, day_cost, hour_cost| {
        let checks: [Check; 4] = [
            on.check(month, month_cost),
            on.check(day, day_cost),
            on.check(hour, hour_cost),
            // A repeat of the first, which counts with it.
            on.check(month, month_cost),
        ];
        checks
    };
    let left = async |checks: &[Check]| {
        let decision = on.decide(checks).await?.decision;
        let left: Vec<u64> = decision.outcomes().iter().map(Outcome::remaining).collect();
        Ok::<_, Stop>((decision.is_allowed(), left))
    };
    on.equal(left(&request(1, 1, 1)).await?, (true, vec![4, 2, 3, 3]), || "the first request");
    on.equal(left(&request(1, 3, 1)).await?, (false, vec![3, 2, 3, 3]), || "the day refuses");
    on.equal(left(&request(2, 1, 1)).await?, (false, vec![3, 2, 3, 3]), || "the month refuses, as it counts twice");
    let shadow =
        request(1, 3, 1).map(|check| if *check.counter.quota() == day { check.mode(Mode::Shadow) } else { check });
    on.equal(left(&shadow).await?, (true, vec![2, 2, 2, 1]), || "the day refuses in shadow mode");
    on.equal(left(&request(0, 0, 0)).await?, (true, vec![1, 2, 2, 1]), || "what was taken");
    Ok(())
}

async fn the_window_of_an_outcome_is_the_one_that_counts(on: &Subject) -> Checked {
    let (billing, day) = (billing()?, quota(5, Calendar::daily("Europe/Berlin"))?);
    let cases = [
        (0, billing, 31 * DAY),
        (JANUARY_31, billing, 29 * DAY),
        (MARCH_31, billing, 30 * DAY - HOUR),
        (MARCH_31, day, 23 * HOUR),
    ];
    for (now, quota, length) in cases {
        for cost in [1, 9, 0] {
            on.at(now)?;
            let decision = on.decide(&[on.check(quota, cost)]).await?.decision;
            let found = decision.outcomes().first().map(Outcome::window);
            on.equal(found, Some(us(length)), || format!("the window of {quota} at {now} us, for {cost}"));
        }
    }
    Ok(())
}
