//! The answers of the sliding log.

use tollgate::Quota;
use tollgate::store::Change::{Charge, Refund};

use super::rows::{DAY, MONTH, MS, S, admits, assert_foreign_values_are_new, denies, never, run, table, us};
use super::subject::{Subject, on_each_store};

const FIVE: Quota = Quota::sliding_log(5, us(60 * S));

#[tokio::test]
async fn no_burst_passes_a_sliding_log_around_the_end_of_a_window() {
    let rows = [
        admits(55 * S, 5, 0, 60 * S),
        denies(60 * S, 1, 0, 55 * S, 55 * S),
        denies(60 * S, 5, 0, 55 * S, 55 * S),
        denies(115 * S - 1, 1, 0, 1, 1),
        admits(115 * S, 5, 0, 60 * S),
    ];
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_sliding_log_waits_for_as_many_units_as_a_request_needs() {
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
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn two_units_in_one_microsecond_stay_two_in_a_sliding_log() {
    let two = Quota::sliding_log(2, us(60 * S));
    let rows = [
        admits(7, 1, 1, 60 * S),
        admits(7, 1, 0, 60 * S),
        denies(7, 1, 0, 60 * S, 60 * S),
        denies(60 * S + 6, 1, 0, 1, 1),
        admits(60 * S + 7, 2, 0, 60 * S),
    ];
    table(two, &rows).await;
}

#[tokio::test]
async fn a_sliding_log_answers_every_cost() {
    let rows = [
        admits(0, 0, 5, 0),
        never(0, 6, 5, 0),
        never(0, u64::MAX, 5, 0),
        admits(0, 5, 0, 60 * S),
        admits(S, 0, 0, 59 * S),
        denies(S, 5, 0, 59 * S, 59 * S),
        never(S, 6, 0, 59 * S),
    ];
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_sliding_log_leaves_its_floor() {
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
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_sliding_log_forgets_nothing_when_the_clock_steps_back() {
    let rows = [
        admits(100 * S, 2, 3, 60 * S),
        admits(70 * S, 2, 1, 90 * S),
        denies(60 * S, 2, 1, 100 * S, 100 * S),
        denies(40 * S, 2, 1, 120 * S, 120 * S),
        admits(40 * S - 1, 2, 3, 60 * S),
    ];
    table(FIVE, &rows).await;
}

#[tokio::test]
async fn a_sliding_log_may_be_very_short_or_very_long() {
    run(
        &Subject::by_clock_alone(),
        Quota::sliding_log(2, us(1)),
        &[admits(0, 2, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 2, 0, 1)],
    )
    .await;
    let month = Quota::sliding_log(2, us(MONTH));
    let rows = [
        admits(999, 1, 1, MONTH),
        admits(DAY, 1, 0, MONTH),
        denies(2 * DAY, 1, 0, 28 * DAY, 29 * DAY),
        denies(MONTH - 1, 1, 0, MS, DAY + MS),
        admits(MONTH, 1, 0, MONTH),
    ];
    table(month, &rows).await;
}

#[tokio::test]
async fn a_sliding_log_keeps_its_units_when_the_limit_changes() {
    on_each_store(async |subject| {
        run(subject, FIVE, &[admits(0, 2, 3, 60 * S), admits(10 * S, 2, 1, 60 * S)]).await;
        let (less, more) = (Quota::sliding_log(2, us(60 * S)), Quota::sliding_log(9, us(60 * S)));
        run(subject, less, &[denies(20 * S, 1, 0, 50 * S, 50 * S), never(20 * S, 3, 0, 50 * S)]).await;
        run(subject, more, &[admits(20 * S, 3, 2, 60 * S)]).await;
        run(subject, FIVE, &[denies(20 * S, 1, 0, 50 * S, 60 * S), admits(70 * S, 2, 0, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_refund_removes_the_units_of_its_time_from_a_sliding_log() {
    on_each_store(async |subject| {
        let first = subject.take(0, FIVE, 2).await;
        let _ = subject.take(10 * S, FIVE, 2).await;
        subject.settle_at(20 * S, first, Refund(9)).await;
        run(subject, FIVE, &[denies(20 * S, 4, 3, 50 * S, 50 * S), admits(20 * S, 3, 0, 60 * S)]).await;
        subject.reset(FIVE).await;
        let old = subject.take(0, FIVE, 2).await;
        run(subject, FIVE, &[admits(60 * S, 3, 2, 60 * S)]).await;
        subject.settle_at(60 * S, old, Refund(2)).await;
        run(subject, FIVE, &[admits(60 * S, 0, 2, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_refund_without_a_receipt_removes_the_newest_units_from_a_sliding_log() {
    on_each_store(async |subject| {
        run(subject, FIVE, &[admits(0, 2, 3, 60 * S), admits(10 * S, 3, 0, 60 * S)]).await;
        subject.adjust_at(20 * S, FIVE, Refund(2)).await;
        run(subject, FIVE, &[admits(20 * S, 0, 2, 50 * S), denies(20 * S, 4, 2, 40 * S, 50 * S)]).await;
        subject.adjust_at(20 * S, FIVE, Refund(u64::MAX)).await;
        run(subject, FIVE, &[admits(20 * S, 0, 5, 0)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_sliding_log_is_charged_at_most_one_limit_more() {
    on_each_store(async |subject| {
        let taken = subject.take(0, FIVE, 1).await;
        subject.settle_at(10 * S, taken, Charge(u64::MAX)).await;
        subject.assert_lives(us(60 * S), us(60 * S));
        run(subject, FIVE, &[denies(10 * S, 1, 0, 60 * S, 60 * S), denies(60 * S, 1, 0, 10 * S, 10 * S)]).await;
        subject.adjust_at(60 * S, FIVE, Charge(9)).await;
        // Nine units of 10 s and the tenth of 60 s, all the debt there may be.
        run(subject, FIVE, &[admits(70 * S, 0, 4, 50 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_foreign_value_is_a_new_sliding_log() {
    assert_foreign_values_are_new(FIVE, admits(0, 2, 3, 60 * S)).await;
}
