//! The answers of the leaky bucket, refusing and queueing.

use tollgate::Quota;
use tollgate::store::Change::{Charge, Refund};

use super::rows::{MONTH, MS, S, admits, assert_foreign_values_are_new, denies, never, run, table, us};
use super::subject::{Subject, on_each_store};

/// A slot every 10 s.
const STRICT: Quota = Quota::leaky_bucket(6, us(60 * S));
const QUEUED: Quota = STRICT.queue(2);

#[tokio::test]
async fn no_burst_passes_a_leaky_bucket_around_the_end_of_a_window() {
    let rows = [
        admits(59 * S, 1, 0, 10 * S),
        denies(60 * S, 1, 0, 9 * S, 9 * S),
        denies(69 * S - 1, 1, 0, 1, 1),
        admits(69 * S, 1, 0, 10 * S),
    ];
    table(STRICT, &rows).await;
}

#[tokio::test]
async fn a_queue_gives_each_request_its_slot() {
    let rows = [
        admits(0, 1, 2, 10 * S),
        admits(0, 1, 1, 20 * S).delay(10 * S),
        admits(5 * S, 1, 0, 25 * S).delay(15 * S),
        denies(5 * S, 1, 0, 5 * S, 25 * S),
        denies(10 * S - 1, 1, 0, 1, 20 * S + 1),
        admits(10 * S, 1, 0, 30 * S).delay(20 * S),
        admits(40 * S, 1, 2, 10 * S),
    ];
    table(QUEUED, &rows).await;
}

#[tokio::test]
async fn a_large_request_starts_at_its_first_slot_and_takes_them_all() {
    let rows = [
        admits(0, 3, 0, 30 * S),
        denies(0, 3, 0, 10 * S, 30 * S),
        denies(0, 1, 0, 10 * S, 30 * S),
        admits(10 * S, 3, 0, 50 * S).delay(20 * S),
        denies(10 * S, 1, 0, 30 * S, 50 * S),
        never(10 * S, 4, 0, 50 * S),
    ];
    table(QUEUED, &rows).await;
}

#[tokio::test]
async fn a_leaky_bucket_answers_every_cost() {
    let rows = [
        admits(0, 0, 1, 0),
        never(0, 2, 1, 0),
        never(0, u64::MAX, 1, 0),
        admits(0, 1, 0, 10 * S),
        admits(S, 0, 0, 9 * S),
        denies(S, 1, 0, 9 * S, 9 * S),
        never(S, 2, 0, 9 * S),
    ];
    table(STRICT, &rows).await;
}

#[tokio::test]
async fn a_leaky_bucket_leaves_its_floor() {
    let rows = [
        never(0, 3, 2, 0).floor(1),
        admits(0, 1, 1, 10 * S).floor(1),
        admits(0, 1, 0, 20 * S).floor(1).delay(10 * S),
        denies(0, 1, 0, 10 * S, 20 * S).floor(1),
        never(0, 1, 0, 20 * S).floor(u64::MAX),
        admits(0, 0, 0, 20 * S).floor(3),
        admits(0, 1, 0, 30 * S).delay(20 * S),
    ];
    table(QUEUED, &rows).await;
}

#[tokio::test]
async fn slots_that_do_not_divide_the_window_do_not_drift() {
    let seven = Quota::leaky_bucket(7, us(60 * S)).queue(7);
    let rows = [
        admits(0, 1, 7, 8_571_429),
        admits(0, 1, 6, 17_142_858).delay(8_571_429),
        admits(0, 1, 5, 25_714_286).delay(17_142_858),
        admits(0, 4, 1, 60 * S).delay(25_714_286),
        admits(0, 1, 0, 68_571_429).delay(60 * S),
        denies(0, 1, 0, 8_571_429, 68_571_429),
    ];
    table(seven, &rows).await;
}

#[tokio::test]
async fn a_leaky_bucket_is_not_opened_by_a_clock_that_steps_back() {
    let rows = [
        admits(100 * S, 1, 0, 10 * S),
        denies(70 * S, 1, 0, 40 * S, 40 * S),
        denies(40 * S, 1, 0, 70 * S, 70 * S),
        admits(40 * S - 1, 1, 0, 10 * S),
    ];
    table(STRICT, &rows).await;
    let queued = [admits(100 * S, 1, 2, 10 * S), admits(90 * S, 1, 1, 30 * S).delay(20 * S)];
    table(QUEUED, &queued).await;
}

#[tokio::test]
async fn a_leaky_bucket_may_be_very_short_or_very_long() {
    let tiny = [admits(0, 1, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 1, 0, 1)];
    run(&Subject::by_clock_alone(), Quota::leaky_bucket(1, us(1)), &tiny).await;
    let rows = [
        admits(0, 1, 0, MONTH / 2),
        denies(999, 1, 0, MONTH / 2, MONTH / 2),
        denies(MONTH / 2 - 1, 1, 0, MS, MS),
        admits(MONTH / 2, 1, 0, MONTH / 2),
    ];
    table(Quota::leaky_bucket(2, us(MONTH)), &rows).await;
}

#[tokio::test]
async fn a_leaky_bucket_keeps_its_slots_when_the_limit_or_queue_changes() {
    on_each_store(async |subject| {
        run(subject, QUEUED, &[admits(0, 3, 0, 30 * S)]).await;
        run(subject, STRICT, &[denies(0, 1, 0, 30 * S, 30 * S)]).await;
        run(subject, STRICT.queue(5), &[admits(0, 1, 2, 40 * S).delay(30 * S)]).await;
        let slower = Quota::leaky_bucket(3, us(60 * S)).queue(4);
        run(subject, slower, &[admits(0, 1, 0, 100 * S).delay(80 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn only_the_last_in_line_of_a_leaky_bucket_is_refunded() {
    on_each_store(async |subject| {
        let (first, last) = (subject.take(0, QUEUED, 1).await, subject.take(0, QUEUED, 1).await);
        subject.settle_at(0, first, Refund(1)).await;
        run(subject, QUEUED, &[admits(0, 0, 1, 20 * S)]).await;
        subject.settle_at(5 * S, last, Refund(9)).await;
        run(subject, QUEUED, &[admits(5 * S, 0, 2, 5 * S)]).await;
        subject.adjust_at(5 * S, QUEUED, Refund(u64::MAX)).await;
        run(subject, QUEUED, &[admits(5 * S, 3, 0, 30 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_slot_that_has_passed_is_not_refunded() {
    on_each_store(async |subject| {
        let gone = subject.take(0, QUEUED, 1).await;
        let _ = subject.take(20 * S, QUEUED, 1).await;
        subject.settle_at(20 * S, gone, Refund(1)).await;
        run(subject, QUEUED, &[admits(20 * S, 0, 2, 10 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_leaky_bucket_is_charged_at_most_one_capacity_more() {
    on_each_store(async |subject| {
        let taken = subject.take(0, QUEUED, 1).await;
        subject.settle_at(0, taken, Charge(u64::MAX)).await;
        subject.assert_lives(us(60 * S), us(60 * S));
        let rows = [
            denies(0, 1, 0, 40 * S, 60 * S),
            denies(40 * S - 1, 1, 0, 1, 20 * S + 1),
            admits(40 * S, 1, 0, 30 * S).delay(20 * S),
        ];
        run(subject, QUEUED, &rows).await;
    })
    .await;
}

#[tokio::test]
async fn a_foreign_value_is_a_new_leaky_bucket() {
    assert_foreign_values_are_new(QUEUED, admits(0, 2, 1, 20 * S)).await;
}
