//! The answers of the sliding window.

use super::case::Case;
use super::rows::{DAY, MONTH, MS, S, admits, denies, never, us};
use super::subject::{Checked, Subject};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    no_burst_passes_a_sliding_window_around_its_end,
    the_window_before_weighs_by_the_share_still_covered,
    a_quota_that_does_not_divide_its_window_waits_for_the_tick_that_admits,
    a_sliding_window_answers_every_cost,
    a_sliding_window_leaves_its_floor,
    a_sliding_window_is_not_opened_by_a_clock_that_steps_back,
    a_sliding_window_may_be_very_short_or_very_long,
    a_billion_a_day_of_a_sliding_window_are_exact_to_the_tick,
    a_sliding_window_keeps_its_counts_when_the_limit_changes,
    a_sliding_window_is_refunded_while_its_window_counts,
    a_refund_without_a_receipt_is_of_the_newer_window_first,
    a_sliding_window_is_charged_at_most_one_limit_more,
    a_charge_goes_to_the_current_window_whatever_the_receipt,
];

const TEN: Quota = Quota::sliding_window(10, us(60 * S));

async fn no_burst_passes_a_sliding_window_around_its_end(on: &Subject) -> Checked {
    let rows = [
        admits(55 * S, 10, 0, 65 * S),
        // Nine of ten count from 1 us into the next window.
        denies(55 * S, 1, 0, 5 * S + 1, 65 * S),
        denies(60 * S, 1, 0, 1, 60 * S),
        admits(60 * S + 1, 1, 0, 120 * S - 1),
        denies(60 * S + 1, 1, 0, 6 * S, 120 * S - 1),
    ];
    on.table(TEN, &rows).await
}

async fn the_window_before_weighs_by_the_share_still_covered(on: &Subject) -> Checked {
    let rows = [
        admits(0, 10, 0, 120 * S),
        admits(90 * S, 0, 5, 30 * S),
        denies(90 * S, 6, 5, 1, 30 * S),
        admits(90 * S, 5, 0, 90 * S),
        denies(90 * S, 1, 0, 1, 90 * S),
        denies(96 * S, 2, 1, 1, 84 * S),
        admits(96 * S + 1, 2, 0, 84 * S - 1),
        denies(96 * S + 1, 10, 0, 75_428_571, 84 * S - 1),
        admits(120 * S, 0, 3, 60 * S),
        admits(180 * S, 10, 0, 120 * S),
    ];
    on.table(TEN, &rows).await
}

async fn a_quota_that_does_not_divide_its_window_waits_for_the_tick_that_admits(on: &Subject) -> Checked {
    let three = Quota::sliding_window(3, us(S));
    // Redis keeps such state for real seconds, and the table takes less.
    let rows = [
        admits(0, 3, 0, 2 * S),
        denies(S, 1, 0, 1, S),
        denies(S, 2, 0, 333_334, S),
        denies(S, 3, 0, 666_667, S),
        denies(S + 333_333, 2, 1, 1, 666_667),
        admits(S + 333_334, 2, 0, 1_666_666),
    ];
    on.run(three, &rows).await
}

async fn a_sliding_window_answers_every_cost(on: &Subject) -> Checked {
    let rows = [
        admits(0, 0, 10, 0),
        never(0, 11, 10, 0),
        never(0, u64::MAX, 10, 0),
        admits(0, 10, 0, 120 * S),
        admits(S, 0, 0, 119 * S),
        denies(S, 10, 0, 113 * S + 1, 119 * S),
        never(S, 11, 0, 119 * S),
    ];
    on.table(TEN, &rows).await
}

async fn a_sliding_window_leaves_its_floor(on: &Subject) -> Checked {
    let rows = [
        never(0, 7, 6, 0).floor(4),
        admits(0, 5, 1, 120 * S).floor(4),
        denies(0, 2, 1, 60 * S + 1, 120 * S).floor(4),
        never(0, 1, 0, 120 * S).floor(u64::MAX),
        admits(0, 0, 0, 120 * S).floor(10),
        admits(0, 5, 0, 120 * S),
    ];
    on.table(TEN, &rows).await
}

async fn a_sliding_window_is_not_opened_by_a_clock_that_steps_back(on: &Subject) -> Checked {
    let rows = [
        admits(130 * S, 10, 0, 110 * S),
        denies(100 * S, 1, 0, 80 * S + 1, 140 * S),
        denies(70 * S, 1, 0, 110 * S + 1, 170 * S),
        admits(70 * S - 1, 1, 9, 110 * S + 1),
    ];
    on.table(TEN, &rows).await
}

async fn a_sliding_window_may_be_very_short_or_very_long(on: &Subject) -> Checked {
    let tiny = [admits(0, 2, 0, 2), denies(0, 1, 0, 2, 2), denies(1, 1, 0, 1, 1), admits(2, 2, 0, 2)];
    on.table_by_clock(Quota::sliding_window(2, us(1)), &tiny).await?;
    let rows = [
        admits(DAY, 3, 0, 59 * DAY),
        denies(2 * DAY, 3, 0, 48 * DAY + MS, 58 * DAY),
        denies(50 * DAY, 3, 2, MS, 10 * DAY),
        admits(50 * DAY + MS, 3, 0, 40 * DAY - MS),
    ];
    on.table(Quota::sliding_window(3, us(MONTH)), &rows).await
}

async fn a_billion_a_day_of_a_sliding_window_are_exact_to_the_tick(on: &Subject) -> Checked {
    let billion = 1_000_000_000;
    let rows = [
        admits(0, billion, 0, 2 * DAY),
        denies(0, 1, 0, DAY + MS, 2 * DAY),
        denies(DAY, 1, 0, MS, DAY),
        // 11.6 units a tick.
        denies(DAY + MS, 11_574, 12, 999 * MS, DAY - MS),
    ];
    on.table(Quota::sliding_window(billion, us(DAY)), &rows).await?;
    let less = Quota::sliding_window(100, us(DAY));
    on.run(less, &[denies(DAY + DAY / 2, 1, 0, 43_199_992 * MS, DAY / 2)]).await
}

async fn a_sliding_window_keeps_its_counts_when_the_limit_changes(on: &Subject) -> Checked {
    on.run(TEN, &[admits(0, 8, 2, 120 * S)]).await?;
    let (less, more) = (Quota::sliding_window(4, us(60 * S)), Quota::sliding_window(20, us(60 * S)));
    let rows = [denies(0, 1, 0, 90 * S + 1, 120 * S), never(0, 5, 0, 120 * S), denies(90 * S, 1, 0, 1, 30 * S)];
    on.run(less, &rows).await?;
    on.run(more, &[admits(90 * S, 10, 6, 90 * S)]).await?;
    on.run(TEN, &[denies(90 * S, 1, 0, 30 * S + 1, 90 * S)]).await
}

async fn a_sliding_window_is_refunded_while_its_window_counts(on: &Subject) -> Checked {
    let (first, second) = (on.take(0, TEN, 4).await?, on.take(0, TEN, 4).await?);
    on.settle_at(10 * S, first, Refund(9)).await?;
    on.run(TEN, &[admits(10 * S, 0, 6, 110 * S)]).await?;
    let _ = on.take(60 * S, TEN, 3).await?;
    on.settle_at(60 * S, second, Refund(9)).await?;
    on.run(TEN, &[admits(60 * S, 0, 7, 120 * S)]).await?;
    let old = on.take(60 * S, TEN, 3).await?;
    let _ = on.take(180 * S, TEN, 3).await?;
    on.settle_at(180 * S, old, Refund(3)).await?;
    on.run(TEN, &[admits(180 * S, 0, 7, 120 * S)]).await
}

async fn a_refund_without_a_receipt_is_of_the_newer_window_first(on: &Subject) -> Checked {
    let _ = on.take(0, TEN, 4).await?;
    let _ = on.take(60 * S, TEN, 2).await?;
    on.adjust_at(60 * S, TEN, Refund(3)).await?;
    on.run(TEN, &[admits(60 * S, 0, 7, 60 * S)]).await?;
    on.adjust_at(60 * S, TEN, Refund(u64::MAX)).await?;
    on.run(TEN, &[admits(60 * S, 0, 10, 0)]).await
}

async fn a_sliding_window_is_charged_at_most_one_limit_more(on: &Subject) -> Checked {
    let taken = on.take(0, TEN, 1).await?;
    on.settle_at(0, taken, Charge(u64::MAX)).await?;
    // Twenty count: nine or fewer once half of the next window and a tick are over.
    on.run(TEN, &[denies(0, 1, 0, 90 * S + 1, 120 * S), denies(90 * S, 1, 0, 1, 30 * S)]).await?;
    on.run(TEN, &[admits(90 * S + 1, 1, 0, 90 * S - 1)]).await
}

async fn a_charge_goes_to_the_current_window_whatever_the_receipt(on: &Subject) -> Checked {
    let taken = on.take(0, TEN, 1).await?;
    on.settle_at(120 * S, taken, Charge(4)).await?;
    on.run(TEN, &[admits(120 * S, 0, 6, 120 * S)]).await
}
