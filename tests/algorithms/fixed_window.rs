//! The answers of the fixed window.

use tollgate::Quota;
use tollgate::store::Change::{Charge, Refund};

use super::rows::{DAY, EPOCH_US, MONTH, MS, S, admits, assert_foreign_values_are_new, denies, never, run, table, us};
use super::subject::{Subject, on_each_store};

const FIVE: Quota = Quota::fixed_window(5, us(60 * S));

#[tokio::test]
async fn twice_the_limit_passes_around_the_end_of_a_fixed_window() {
    let rows = [
        admits(55 * S, 5, 0, 5 * S),
        denies(55 * S, 1, 0, 5 * S, 5 * S),
        denies(60 * S - 1, 1, 0, 1, 1),
        admits(60 * S, 5, 0, 60 * S),
        denies(60 * S, 1, 0, 60 * S, 60 * S),
    ];
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_fixed_window_starts_anew_at_its_end() {
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
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn fixed_windows_are_aligned_to_the_epoch_and_not_to_the_first_request() {
    let rows = [admits(45 * S, 5, 0, 15 * S), denies(60 * S - 1, 5, 0, 1, 1), admits(60 * S, 5, 0, 60 * S)];
    table(FIVE, &rows).await;
    let length = 7 * 3_600 * S;
    let left = length - EPOCH_US % length;
    assert_ne!(left, length, "the clock starts within a window");
    let rows = [admits(0, 2, 0, left), denies(left - S, 1, 0, S, S), admits(left, 2, 0, length)];
    table(Quota::fixed_window(2, us(length)), &rows).await;
}

#[tokio::test]
async fn a_fixed_window_answers_every_cost() {
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
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_fixed_window_leaves_its_floor() {
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
    table(Quota::fixed_window(10, us(60 * S)), &rows).await;
}

#[tokio::test]
async fn a_fixed_window_is_not_opened_by_a_clock_that_steps_back() {
    let rows = [
        admits(130 * S, 4, 1, 50 * S),
        denies(100 * S, 2, 1, 80 * S, 80 * S),
        admits(100 * S, 1, 0, 80 * S),
        denies(60 * S, 1, 0, 120 * S, 120 * S),
        // Further ahead than a window is long, it counts as new.
        admits(59 * S, 1, 4, S),
        admits(60 * S, 1, 4, 60 * S),
    ];
    table(FIVE, &rows).await;
    let rows = [
        admits(670 * S, 5, 0, 50 * S),
        denies(600 * S, 1, 0, 120 * S, 120 * S),
        denies(720 * S - 1, 1, 0, 1, 1),
        admits(720 * S, 1, 4, 60 * S),
    ];
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_fixed_window_may_be_very_short_or_very_long() {
    let tiny = Quota::fixed_window(2, us(1));
    table(tiny, &[never(0, 3, 2, 0), admits(S, 2, 0, 1), admits(S + 1, 2, 0, 1)]).await;
    // Redis forgets such a window after a real millisecond.
    let rows =
        [admits(0, 1, 1, 1), denies(0, 2, 1, 1, 1), admits(0, 1, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 2, 0, 1)];
    run(&Subject::by_clock_alone(), tiny, &rows).await;
    let month = Quota::fixed_window(7, us(MONTH));
    let rows = [
        admits(DAY, 7, 0, 29 * DAY),
        denies(DAY + 999, 1, 0, 29 * DAY, 29 * DAY),
        denies(MONTH - 1, 7, 0, MS, MS),
        admits(MONTH, 7, 0, MONTH),
    ];
    table(month, &rows).await;
}

#[tokio::test]
async fn the_largest_limit_of_a_fixed_window_is_counted_to_the_unit() {
    let most = (1 << 49) - 1;
    let rows = [
        admits(0, most - 1, 1, 60 * S),
        denies(0, 2, 1, 60 * S, 60 * S),
        admits(0, 1, 0, 60 * S),
        never(0, most + 1, 0, 60 * S),
    ];
    table(Quota::fixed_window(most, us(60 * S)), &rows).await;
}

#[tokio::test]
async fn a_fixed_window_keeps_its_count_when_the_limit_changes() {
    on_each_store(async |subject| {
        run(subject, FIVE, &[admits(0, 4, 1, 60 * S)]).await;
        let (less, more) = (Quota::fixed_window(2, us(60 * S)), Quota::fixed_window(9, us(60 * S)));
        run(subject, less, &[admits(0, 0, 0, 60 * S), denies(0, 1, 0, 60 * S, 60 * S), never(0, 3, 0, 60 * S)]).await;
        run(subject, more, &[admits(0, 3, 2, 60 * S)]).await;
        run(subject, FIVE, &[denies(0, 1, 0, 60 * S, 60 * S), admits(60 * S, 5, 0, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_fixed_window_is_refunded_while_it_lasts() {
    on_each_store(async |subject| {
        let taken = subject.take(0, FIVE, 3).await;
        subject.settle_at(59 * S, taken, Refund(9)).await;
        run(subject, FIVE, &[admits(30 * S, 4, 1, 30 * S)]).await;
        let late = subject.take(30 * S, FIVE, 1).await;
        run(subject, FIVE, &[admits(60 * S, 1, 4, 60 * S)]).await;
        subject.settle_at(60 * S, late, Refund(1)).await;
        run(subject, FIVE, &[admits(60 * S, 0, 4, 60 * S)]).await;
        subject.adjust_at(60 * S, FIVE, Refund(9)).await;
        run(subject, FIVE, &[admits(60 * S, 5, 0, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_fixed_window_is_charged_at_most_one_limit_more_until_it_ends() {
    on_each_store(async |subject| {
        let taken = subject.take(0, FIVE, 1).await;
        subject.settle_at(S, taken, Charge(u64::MAX)).await;
        subject.assert_lives(us(59 * S), us(60 * S));
        subject.adjust_at(S, FIVE, Refund(5)).await;
        run(subject, FIVE, &[denies(S, 1, 0, 59 * S, 59 * S)]).await;
        subject.adjust_at(S, FIVE, Refund(1)).await;
        run(subject, FIVE, &[admits(S, 1, 0, 59 * S)]).await;
        subject.adjust_at(S, FIVE, Charge(99)).await;
        run(subject, FIVE, &[admits(60 * S, 5, 0, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_foreign_value_is_a_new_fixed_window() {
    assert_foreign_values_are_new(FIVE, admits(0, 2, 3, 60 * S)).await;
}
