//! The answers of the token bucket.

use tollgate::Quota;
use tollgate::store::Change::{Charge, Refund};

use super::rows::{MONTH, MS, S, admits, assert_foreign_values_are_new, denies, never, run, table, us};
use super::subject::{Subject, on_each_store};

const SIX: Quota = Quota::token_bucket(6, us(60 * S));

#[tokio::test]
async fn no_burst_passes_a_token_bucket_around_the_end_of_a_window() {
    let rows = [
        admits(55 * S, 6, 0, 60 * S),
        denies(60 * S, 6, 0, 55 * S, 55 * S),
        denies(60 * S, 1, 0, 5 * S, 55 * S),
        denies(65 * S - 1, 1, 0, 1, 50 * S + 1),
        admits(65 * S, 1, 0, 60 * S),
    ];
    table(SIX, &rows).await;
}

#[tokio::test]
async fn gcra_is_the_token_bucket() {
    on_each_store(async |subject| {
        let gcra = Quota::gcra(6, us(60 * S));
        run(subject, SIX, &[admits(0, 6, 0, 60 * S)]).await;
        run(subject, gcra, &[denies(0, 1, 0, 10 * S, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_token_bucket_answers_every_cost() {
    let rows = [
        admits(0, 0, 6, 0),
        never(0, 7, 6, 0),
        never(0, u64::MAX, 6, 0),
        admits(0, 6, 0, 60 * S),
        admits(S, 0, 0, 59 * S),
        denies(S, 6, 0, 59 * S, 59 * S),
        never(S, 7, 0, 59 * S),
        denies(20 * S - 1, 2, 1, 1, 40 * S + 1),
        admits(20 * S, 2, 0, 60 * S),
    ];
    table(SIX, &rows).await;
}

#[tokio::test]
async fn a_token_bucket_leaves_its_floor() {
    let rows = [
        never(0, 5, 4, 0).floor(2),
        admits(0, 3, 1, 30 * S).floor(2),
        denies(0, 3, 1, 20 * S, 30 * S).floor(2),
        never(0, 1, 0, 30 * S).floor(u64::MAX),
        admits(0, 0, 0, 30 * S).floor(6),
        admits(0, 3, 0, 60 * S),
    ];
    table(SIX, &rows).await;
}

#[tokio::test]
async fn a_burst_may_be_above_or_below_the_limit() {
    let above = [admits(0, 12, 0, 120 * S), denies(0, 12, 0, 120 * S, 120 * S), never(0, 13, 0, 120 * S)];
    table(SIX.burst(12), &above).await;
    let below = [
        never(0, 3, 2, 0),
        admits(0, 2, 0, 20 * S),
        denies(10 * S - 1, 1, 0, 1, 10 * S + 1),
        admits(10 * S, 1, 0, 20 * S),
        admits(500 * S, 2, 0, 20 * S),
    ];
    table(SIX.burst(2), &below).await;
}

#[tokio::test]
async fn a_bucket_that_does_not_divide_its_window_owes_the_fraction() {
    let seven = Quota::token_bucket(7, us(60 * S));
    let rows = [
        admits(0, 7, 0, 60 * S),
        denies(0, 1, 0, 8_571_429, 60 * S),
        admits(8_571_429, 1, 0, 60 * S),
        denies(8_571_429, 1, 0, 8_571_429, 60 * S),
        admits(17_142_858, 1, 0, 60 * S),
        // Three sevenths of a minute are a tick less than three times one rounded up.
        denies(17_142_858, 1, 0, 8_571_428, 60 * S),
        admits(25_714_286, 1, 0, 60 * S),
    ];
    table(seven, &rows).await;
}

#[tokio::test]
async fn a_token_bucket_is_not_filled_by_a_clock_that_steps_back() {
    let rows = [
        admits(100 * S, 6, 0, 60 * S),
        denies(70 * S, 1, 0, 40 * S, 90 * S),
        denies(40 * S, 1, 0, 70 * S, 120 * S),
        denies(110 * S - 1, 1, 0, 1, 50 * S + 1),
        admits(40 * S - 1, 1, 5, 10 * S),
    ];
    table(SIX, &rows).await;
}

#[tokio::test]
async fn a_token_bucket_may_be_very_short_or_very_long() {
    let tiny = [admits(0, 2, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 2, 0, 1)];
    run(&Subject::memory(), Quota::token_bucket(2, us(1)), &tiny).await;
    let rows = [
        admits(0, 2, 0, MONTH),
        denies(999, 1, 0, MONTH / 2, MONTH),
        denies(MONTH / 2 - 1, 1, 0, MS, MONTH / 2 + MS),
        admits(MONTH / 2, 1, 0, MONTH),
    ];
    table(Quota::token_bucket(2, us(MONTH)), &rows).await;
}

#[tokio::test]
async fn a_token_bucket_keeps_its_units_used_when_the_limit_changes() {
    on_each_store(async |subject| {
        run(subject, SIX, &[admits(0, 5, 1, 50 * S)]).await;
        let (less, more) = (Quota::token_bucket(2, us(60 * S)), Quota::token_bucket(12, us(60 * S)));
        run(subject, less, &[denies(0, 1, 0, 120 * S, 150 * S), never(0, 3, 0, 150 * S)]).await;
        run(subject, SIX.burst(20), &[admits(0, 0, 15, 50 * S)]).await;
        run(subject, more, &[admits(0, 5, 2, 50 * S)]).await;
        run(subject, SIX, &[denies(0, 1, 0, 50 * S, 100 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_token_bucket_is_refunded_up_to_its_brim() {
    on_each_store(async |subject| {
        let taken = subject.take(0, SIX, 4).await;
        subject.settle(10 * S, taken, Refund(2)).await;
        run(subject, SIX, &[admits(10 * S, 0, 5, 10 * S), admits(10 * S, 3, 2, 40 * S)]).await;
        let taken = subject.take(10 * S, SIX, 1).await;
        subject.settle(10 * S, taken, Refund(9)).await;
        run(subject, SIX, &[admits(10 * S, 0, 2, 40 * S)]).await;
        subject.adjust(45 * S, SIX, Refund(u64::MAX)).await;
        run(subject, SIX, &[admits(45 * S, 6, 0, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_token_bucket_is_charged_at_most_one_capacity_more_and_pays_it_off() {
    on_each_store(async |subject| {
        let quota = SIX.burst(3);
        let taken = subject.take(0, quota, 1).await;
        subject.settle(0, taken, Charge(u64::MAX)).await;
        subject.assert_lives(us(60 * S), us(60 * S));
        let rows =
            [denies(0, 1, 0, 40 * S, 60 * S), denies(40 * S - 1, 1, 0, 1, 20 * S + 1), admits(40 * S, 1, 0, 30 * S)];
        run(subject, quota, &rows).await;
    })
    .await;
}

#[tokio::test]
async fn a_foreign_value_is_a_new_token_bucket() {
    assert_foreign_values_are_new(SIX, admits(0, 2, 4, 20 * S)).await;
}
