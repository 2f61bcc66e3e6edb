//! The answers of the sliding log.

use super::case::Case;
use super::rows::{DAY, MONTH, MS, S, admits, denies, never, us};
use super::subject::{Checked, Subject};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    no_burst_passes_a_sliding_log_around_the_end_of_a_window,
    a_sliding_log_waits_for_as_many_units_as_a_request_needs,
    two_units_in_one_microsecond_stay_two_in_a_sliding_log,
    a_sliding_log_answers_every_cost,
    a_sliding_log_leaves_its_floor,
    a_sliding_log_forgets_nothing_when_the_clock_steps_back,
    a_sliding_log_may_be_very_short_or_very_long,
    a_sliding_log_keeps_its_units_when_the_limit_changes,
    a_refund_removes_the_units_of_its_time_from_a_sliding_log,
    a_refund_without_a_receipt_removes_the_newest_units_from_a_sliding_log,
    a_sliding_log_is_charged_at_most_one_limit_more,
];

const FIVE: Quota = Quota::sliding_log(5, us(60 * S));

async fn no_burst_passes_a_sliding_log_around_the_end_of_a_window(on: &Subject) -> Checked {
    let rows = [
        admits(55 * S, 5, 0, 60 * S),
        denies(60 * S, 1, 0, 55 * S, 55 * S),
        denies(60 * S, 5, 0, 55 * S, 55 * S),
        denies(115 * S - 1, 1, 0, 1, 1),
        admits(115 * S, 5, 0, 60 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_sliding_log_waits_for_as_many_units_as_a_request_needs(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 4, 60 * S),
        admits(10 * S, 2, 2, 60 * S),
        admits(30 * S, 2, 0, 60 * S),
        denies(40 * S, 1, 0, 20 * S, 50 * S),
        denies(40 * S, 2, 0, 30 * S, 50 * S),
        denies(40 * S, 3, 0, 30 * S, 50 * S),
        denies(40 * S, 4, 0, 50 * S, 50 * S),
        denies(60 * S - 1, 1, 0, 1, 30 * S + 1),
        admits(60 * S, 1, 0, 60 * S),
        admits(70 * S, 0, 2, 50 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn two_units_in_one_microsecond_stay_two_in_a_sliding_log(on: &Subject) -> Checked {
    let two = Quota::sliding_log(2, us(60 * S));
    let rows = [
        admits(7, 1, 1, 60 * S),
        admits(7, 1, 0, 60 * S),
        denies(7, 1, 0, 60 * S, 60 * S),
        denies(60 * S + 6, 1, 0, 1, 1),
        admits(60 * S + 7, 2, 0, 60 * S),
    ];
    on.table(two, &rows).await
}

async fn a_sliding_log_answers_every_cost(on: &Subject) -> Checked {
    let rows = [
        admits(0, 0, 5, 0),
        never(0, 6, 5, 0),
        never(0, u64::MAX, 5, 0),
        admits(0, 5, 0, 60 * S),
        admits(S, 0, 0, 59 * S),
        denies(S, 5, 0, 59 * S, 59 * S),
        never(S, 6, 0, 59 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_sliding_log_leaves_its_floor(on: &Subject) -> Checked {
    let rows = [
        never(0, 4, 3, 0).floor(2),
        admits(0, 2, 1, 60 * S).floor(2),
        admits(S, 1, 0, 60 * S).floor(2),
        denies(S, 1, 0, 59 * S, 60 * S).floor(2),
        denies(S, 3, 0, 60 * S, 60 * S).floor(2),
        never(S, 1, 0, 60 * S).floor(u64::MAX),
        admits(S, 0, 0, 60 * S).floor(5),
        admits(S, 2, 0, 60 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_sliding_log_forgets_nothing_when_the_clock_steps_back(on: &Subject) -> Checked {
    let rows = [
        admits(100 * S, 2, 3, 60 * S),
        admits(70 * S, 2, 1, 90 * S),
        denies(60 * S, 2, 1, 100 * S, 100 * S),
        denies(40 * S, 2, 1, 120 * S, 120 * S),
        admits(40 * S - 1, 2, 3, 60 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_sliding_log_may_be_very_short_or_very_long(on: &Subject) -> Checked {
    on.table_by_clock(Quota::sliding_log(2, us(1)), &[admits(0, 2, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 2, 0, 1)])
        .await?;
    let month = Quota::sliding_log(2, us(MONTH));
    let rows = [
        admits(999, 1, 1, MONTH),
        admits(DAY, 1, 0, MONTH),
        denies(2 * DAY, 1, 0, 28 * DAY, 29 * DAY),
        denies(MONTH - 1, 1, 0, MS, DAY + MS),
        admits(MONTH, 1, 0, MONTH),
    ];
    on.table(month, &rows).await
}

async fn a_sliding_log_keeps_its_units_when_the_limit_changes(on: &Subject) -> Checked {
    on.run(FIVE, &[admits(0, 2, 3, 60 * S), admits(10 * S, 2, 1, 60 * S)]).await?;
    let (less, more) = (Quota::sliding_log(2, us(60 * S)), Quota::sliding_log(9, us(60 * S)));
    on.run(less, &[denies(20 * S, 1, 0, 50 * S, 50 * S), never(20 * S, 3, 0, 50 * S)]).await?;
    on.run(more, &[admits(20 * S, 3, 2, 60 * S)]).await?;
    on.run(FIVE, &[denies(20 * S, 1, 0, 50 * S, 60 * S), admits(70 * S, 2, 0, 60 * S)]).await
}

async fn a_refund_removes_the_units_of_its_time_from_a_sliding_log(on: &Subject) -> Checked {
    let first = on.take(0, FIVE, 2).await?;
    let _ = on.take(10 * S, FIVE, 2).await?;
    on.settle_at(20 * S, first, Refund(9)).await?;
    on.run(FIVE, &[denies(20 * S, 4, 3, 50 * S, 50 * S), admits(20 * S, 3, 0, 60 * S)]).await?;
    on.reset(FIVE).await?;
    let old = on.take(0, FIVE, 2).await?;
    on.run(FIVE, &[admits(60 * S, 3, 2, 60 * S)]).await?;
    on.settle_at(60 * S, old, Refund(2)).await?;
    on.run(FIVE, &[admits(60 * S, 0, 2, 60 * S)]).await
}

async fn a_refund_without_a_receipt_removes_the_newest_units_from_a_sliding_log(on: &Subject) -> Checked {
    on.run(FIVE, &[admits(0, 2, 3, 60 * S), admits(10 * S, 3, 0, 60 * S)]).await?;
    on.adjust_at(20 * S, FIVE, Refund(2)).await?;
    on.run(FIVE, &[admits(20 * S, 0, 2, 50 * S), denies(20 * S, 4, 2, 40 * S, 50 * S)]).await?;
    on.adjust_at(20 * S, FIVE, Refund(u64::MAX)).await?;
    on.run(FIVE, &[admits(20 * S, 0, 5, 0)]).await
}

async fn a_sliding_log_is_charged_at_most_one_limit_more(on: &Subject) -> Checked {
    let taken = on.take(0, FIVE, 1).await?;
    on.settle_at(10 * S, taken, Charge(u64::MAX)).await?;
    on.run(FIVE, &[denies(10 * S, 1, 0, 60 * S, 60 * S), denies(60 * S, 1, 0, 10 * S, 10 * S)]).await?;
    on.adjust_at(60 * S, FIVE, Charge(9)).await?;
    // Nine units of 10 s and the tenth of 60 s, all the debt there may be.
    on.run(FIVE, &[admits(70 * S, 0, 4, 50 * S)]).await
}
