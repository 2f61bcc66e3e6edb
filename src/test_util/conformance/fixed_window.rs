//! The answers of the fixed window.

use super::case::Case;
use super::rows::{DAY, EPOCH_US, MONTH, MS, S, admits, denies, never, us};
use super::subject::{Checked, Subject};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    twice_the_limit_passes_around_the_end_of_a_fixed_window,
    a_fixed_window_starts_anew_at_its_end,
    fixed_windows_are_aligned_to_the_epoch_and_not_to_the_first_request,
    a_fixed_window_answers_every_cost,
    a_fixed_window_leaves_its_floor,
    a_fixed_window_is_not_opened_by_a_clock_that_steps_back,
    a_fixed_window_may_be_very_short_or_very_long,
    the_largest_limit_of_a_fixed_window_is_counted_to_the_unit,
    a_fixed_window_keeps_its_count_when_the_limit_changes,
    a_fixed_window_is_refunded_while_it_lasts,
    a_fixed_window_is_charged_at_most_one_limit_more_until_it_ends,
];

const FIVE: Quota = Quota::fixed_window(5, us(60 * S));

async fn twice_the_limit_passes_around_the_end_of_a_fixed_window(on: &Subject) -> Checked {
    let rows = [
        admits(55 * S, 5, 0, 5 * S),
        denies(55 * S, 1, 0, 5 * S, 5 * S),
        denies(60 * S - 1, 1, 0, 1, 1),
        admits(60 * S, 5, 0, 60 * S),
        denies(60 * S, 1, 0, 60 * S, 60 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_fixed_window_starts_anew_at_its_end(on: &Subject) -> Checked {
    let rows = [
        admits(0, 2, 3, 60 * S),
        admits(10 * S, 1, 2, 50 * S),
        denies(10 * S, 3, 2, 50 * S, 50 * S),
        admits(20 * S, 2, 0, 40 * S),
        denies(20 * S, 1, 0, 40 * S, 40 * S),
        denies(60 * S - 1, 1, 0, 1, 1),
        admits(60 * S, 0, 5, 0),
        admits(60 * S, 1, 4, 60 * S),
        admits(60 * S, 4, 0, 60 * S),
        admits(1_000 * S, 1, 4, 20 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn fixed_windows_are_aligned_to_the_epoch_and_not_to_the_first_request(on: &Subject) -> Checked {
    let rows = [admits(45 * S, 5, 0, 15 * S), denies(60 * S - 1, 5, 0, 1, 1), admits(60 * S, 5, 0, 60 * S)];
    on.table(FIVE, &rows).await?;
    let length = 11 * 3_600 * S;
    let left = length - EPOCH_US % length;
    on.holds(left != length, || "the clock starts within a window");
    let rows = [admits(0, 2, 0, left), denies(left - S, 1, 0, S, S), admits(left, 2, 0, length)];
    on.table(Quota::fixed_window(2, us(length)), &rows).await
}

async fn a_fixed_window_answers_every_cost(on: &Subject) -> Checked {
    let rows = [
        admits(0, 0, 5, 0),
        never(0, 6, 5, 0),
        never(0, u64::MAX, 5, 0),
        admits(0, 5, 0, 60 * S),
        admits(S, 0, 0, 59 * S),
        denies(S, 5, 0, 59 * S, 59 * S),
        never(S, 6, 0, 59 * S),
        admits(61 * S, 2, 3, 59 * S),
        denies(61 * S, 4, 3, 59 * S, 59 * S),
        admits(61 * S, 3, 0, 59 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_fixed_window_leaves_its_floor(on: &Subject) -> Checked {
    let rows = [
        never(0, 7, 6, 0).floor(4),
        admits(0, 5, 1, 60 * S).floor(4),
        denies(0, 2, 1, 60 * S, 60 * S).floor(4),
        admits(0, 1, 0, 60 * S).floor(4),
        denies(0, 1, 0, 60 * S, 60 * S).floor(4),
        never(0, 1, 0, 60 * S).floor(10),
        never(0, 1, 0, 60 * S).floor(u64::MAX),
        admits(0, 0, 0, 60 * S).floor(4),
        admits(0, 4, 0, 60 * S),
    ];
    on.table(Quota::fixed_window(10, us(60 * S)), &rows).await
}

async fn a_fixed_window_is_not_opened_by_a_clock_that_steps_back(on: &Subject) -> Checked {
    let rows = [
        admits(130 * S, 4, 1, 50 * S),
        denies(100 * S, 2, 1, 80 * S, 80 * S),
        admits(100 * S, 1, 0, 80 * S),
        denies(60 * S, 1, 0, 120 * S, 120 * S),
        // Further ahead than a window is long, it counts as new.
        admits(59 * S, 1, 4, S),
        admits(60 * S, 1, 4, 60 * S),
    ];
    on.table(FIVE, &rows).await?;
    let rows = [
        admits(670 * S, 5, 0, 50 * S),
        denies(600 * S, 1, 0, 120 * S, 120 * S),
        denies(720 * S - 1, 1, 0, 1, 1),
        admits(720 * S, 1, 4, 60 * S),
    ];
    on.table(FIVE, &rows).await
}

async fn a_fixed_window_may_be_very_short_or_very_long(on: &Subject) -> Checked {
    let tiny = Quota::fixed_window(2, us(1));
    on.table(tiny, &[never(0, 3, 2, 0), admits(S, 2, 0, 1), admits(S + 1, 2, 0, 1)]).await?;
    // Redis forgets such a window after a real millisecond.
    let rows =
        [admits(0, 1, 1, 1), denies(0, 2, 1, 1, 1), admits(0, 1, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 2, 0, 1)];
    on.table_by_clock(tiny, &rows).await?;
    let month = Quota::fixed_window(7, us(MONTH));
    let rows = [
        admits(DAY, 7, 0, 29 * DAY),
        denies(DAY + 999, 1, 0, 29 * DAY, 29 * DAY),
        denies(MONTH - 1, 7, 0, MS, MS),
        admits(MONTH, 7, 0, MONTH),
    ];
    on.table(month, &rows).await
}

async fn the_largest_limit_of_a_fixed_window_is_counted_to_the_unit(on: &Subject) -> Checked {
    let most = (1 << 49) - 1;
    let rows = [
        admits(0, most - 1, 1, 60 * S),
        denies(0, 2, 1, 60 * S, 60 * S),
        admits(0, 1, 0, 60 * S),
        never(0, most + 1, 0, 60 * S),
    ];
    on.table(Quota::fixed_window(most, us(60 * S)), &rows).await
}

async fn a_fixed_window_keeps_its_count_when_the_limit_changes(on: &Subject) -> Checked {
    on.run(FIVE, &[admits(0, 4, 1, 60 * S)]).await?;
    let (less, more) = (Quota::fixed_window(2, us(60 * S)), Quota::fixed_window(9, us(60 * S)));
    on.run(less, &[admits(0, 0, 0, 60 * S), denies(0, 1, 0, 60 * S, 60 * S), never(0, 3, 0, 60 * S)]).await?;
    on.run(more, &[admits(0, 3, 2, 60 * S)]).await?;
    on.run(FIVE, &[denies(0, 1, 0, 60 * S, 60 * S), admits(60 * S, 5, 0, 60 * S)]).await
}

async fn a_fixed_window_is_refunded_while_it_lasts(on: &Subject) -> Checked {
    let taken = on.take(0, FIVE, 3).await?;
    on.settle_at(59 * S, taken, Refund(9)).await?;
    on.run(FIVE, &[admits(30 * S, 4, 1, 30 * S)]).await?;
    let late = on.take(30 * S, FIVE, 1).await?;
    on.run(FIVE, &[admits(60 * S, 1, 4, 60 * S)]).await?;
    on.settle_at(60 * S, late, Refund(1)).await?;
    on.run(FIVE, &[admits(60 * S, 0, 4, 60 * S)]).await?;
    on.adjust_at(60 * S, FIVE, Refund(9)).await?;
    on.run(FIVE, &[admits(60 * S, 5, 0, 60 * S)]).await
}

async fn a_fixed_window_is_charged_at_most_one_limit_more_until_it_ends(on: &Subject) -> Checked {
    let taken = on.take(0, FIVE, 1).await?;
    on.settle_at(S, taken, Charge(u64::MAX)).await?;
    on.adjust_at(S, FIVE, Refund(5)).await?;
    on.run(FIVE, &[denies(S, 1, 0, 59 * S, 59 * S)]).await?;
    on.adjust_at(S, FIVE, Refund(1)).await?;
    on.run(FIVE, &[admits(S, 1, 0, 59 * S)]).await?;
    on.adjust_at(S, FIVE, Charge(99)).await?;
    on.run(FIVE, &[admits(60 * S, 5, 0, 60 * S)]).await
}
