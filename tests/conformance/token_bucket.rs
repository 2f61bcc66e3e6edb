//! The answers of the token bucket.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::{Check, Deadline};

use super::rows::{DAY, MS, Row, S, admits, denies, micros, never, run, table};
use super::subject::{KEY, Subject, on_each_store};
use crate::support::checks::check;

const THREE_A_MINUTE: Quota = Quota::token_bucket(3, Duration::from_secs(60));

#[tokio::test]
async fn a_bucket_admits_its_burst_and_refills_evenly() {
    table(
        THREE_A_MINUTE,
        &[
            admits(0, 1, 2, 20 * S),
            admits(0, 2, 0, 60 * S),
            denies(0, 1, 0, 20 * S, 60 * S),
            denies(0, 3, 0, 60 * S, 60 * S),
            denies(20 * S - 1, 1, 0, 1, 40 * S + 1),
            admits(20 * S, 1, 0, 60 * S),
            denies(50 * S, 2, 1, 10 * S, 30 * S),
            denies(60 * S - 1, 2, 1, 1, 20 * S + 1),
            admits(60 * S, 2, 0, 60 * S),
            admits(1_000 * S, 3, 0, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_look_takes_nothing_and_always_fits() {
    table(
        THREE_A_MINUTE,
        &[
            admits(0, 0, 3, 0),
            admits(0, 3, 0, 60 * S),
            admits(0, 0, 0, 60 * S),
            admits(30 * S, 0, 1, 30 * S),
            admits(60 * S, 0, 3, 0),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_cost_above_the_burst_is_denied_without_a_time_to_retry() {
    table(
        THREE_A_MINUTE,
        &[never(0, 4, 3, 0), admits(0, 1, 2, 20 * S), never(0, 4, 2, 20 * S), never(0, u64::MAX, 2, 20 * S)],
    )
    .await;
}

#[tokio::test]
async fn a_burst_above_the_limit_is_had_at_once_and_refilled_slowly() {
    let quota = Quota::token_bucket(1, Duration::from_secs(60)).burst(5);
    table(
        quota,
        &[
            admits(0, 5, 0, 300 * S),
            denies(0, 1, 0, 60 * S, 300 * S),
            denies(0, 2, 0, 120 * S, 300 * S),
            denies(0, 5, 0, 300 * S, 300 * S),
            never(0, 6, 0, 300 * S),
            denies(60 * S - 1, 1, 0, 1, 240 * S + 1),
            admits(60 * S, 1, 0, 300 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_burst_below_the_limit_bounds_what_is_had_at_once() {
    let quota = Quota::token_bucket(6, Duration::from_secs(600)).burst(2);
    table(
        quota,
        &[
            never(0, 3, 2, 0),
            admits(0, 2, 0, 200 * S),
            denies(0, 1, 0, 100 * S, 200 * S),
            never(0, 3, 0, 200 * S),
            denies(100 * S - MS, 1, 0, MS, 100 * S + MS),
            admits(100 * S, 1, 0, 200 * S),
            admits(900 * S, 2, 0, 200 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_floor_is_left_to_those_who_may_have_it() {
    let ten = Quota::token_bucket(10, Duration::from_secs(60));
    table(
        ten,
        &[
            never(0, 7, 6, 0).floor(4),
            admits(0, 5, 1, 30 * S).floor(4),
            denies(0, 2, 1, 6 * S, 30 * S).floor(4),
            admits(0, 1, 0, 36 * S).floor(4),
            denies(0, 1, 0, 6 * S, 36 * S).floor(4),
            denies(6 * S - 1, 1, 0, 1, 30 * S + 1).floor(4),
            admits(6 * S, 1, 0, 36 * S).floor(4),
            never(6 * S, 1, 0, 36 * S).floor(10),
            never(6 * S, 1, 0, 36 * S).floor(u64::MAX),
            admits(6 * S, 4, 0, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_quota_that_does_not_divide_its_window_is_rounded_only_in_answers() {
    let seven = Quota::token_bucket(7, Duration::from_secs(60));
    table(
        seven,
        &[
            admits(0, 7, 0, 60 * S),
            denies(0, 1, 0, 8_571_429, 60 * S),
            denies(8_571_428, 1, 0, 1, 51_428_572),
            admits(8_571_429, 1, 0, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn units_taken_one_by_one_as_soon_as_they_come_do_not_drift() {
    let seven = Quota::token_bucket(7, Duration::from_secs(60));
    on_each_store(async |subject| {
        let mut now = 0;
        subject.take(now, seven, 7).await;
        for _ in 0..70 {
            now += refusal(subject, now, &[check(KEY, seven, 1)]).await;
            subject.take(now, seven, 1).await;
        }
        assert_eq!(now, 600 * S, "{}: 70 units are ten windows", subject.name);
    })
    .await;
}

/// Asks, which is refused, and returns the time to wait.
async fn refusal(subject: &Subject, now: u64, checks: &[Check]) -> u64 {
    subject.clock.set(now);
    let decision = subject.decide(checks, Deadline::none()).await.decision;
    micros(decision.retry_after().expect("refused for a time"))
}

#[tokio::test]
async fn a_clock_that_steps_back_neither_refills_nor_rewinds() {
    let six = Quota::token_bucket(6, Duration::from_secs(60));
    table(
        six,
        &[
            admits(600 * S, 6, 0, 60 * S),
            denies(570 * S, 1, 0, 40 * S, 90 * S),
            denies(600 * S, 1, 0, 10 * S, 60 * S),
            denies(540 * S, 1, 0, 70 * S, 120 * S),
            denies(610 * S - 1, 1, 0, 1, 50 * S + 1),
            admits(610 * S, 1, 0, 60 * S),
            denies(590 * S, 1, 0, 30 * S, 80 * S),
            admits(650 * S, 4, 0, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn taking_while_the_clock_is_back_keeps_the_later_time() {
    let six = Quota::token_bucket(6, Duration::from_secs(60));
    table(
        six,
        &[
            admits(600 * S, 1, 5, 10 * S),
            admits(580 * S, 1, 4, 40 * S),
            admits(600 * S, 4, 0, 60 * S),
            denies(600 * S, 1, 0, 10 * S, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_bucket_further_ahead_than_its_window_counts_as_new() {
    let six = Quota::token_bucket(6, Duration::from_secs(60));
    table(
        six,
        &[admits(610 * S, 6, 0, 60 * S), denies(550 * S, 6, 0, 120 * S, 120 * S), admits(549 * S, 1, 5, 10 * S)],
    )
    .await;
}

#[tokio::test]
async fn a_bucket_over_a_microsecond_refills_in_one() {
    let tiny = Quota::token_bucket(2, Duration::from_micros(1)).burst(6);
    table(tiny, &[never(0, 7, 6, 0), admits(S, 6, 0, 3), admits(2 * S, 6, 0, 3)]).await;
    // Redis forgets such a bucket after a real millisecond, so only memory can be asked at leisure.
    let rows: [Row; 4] = [admits(0, 6, 0, 3), denies(0, 1, 0, 1, 3), denies(0, 5, 0, 3, 3), admits(1, 2, 0, 3)];
    run(&Subject::memory(), tiny, &rows).await;
}

#[tokio::test]
async fn a_bucket_over_a_month_counts_in_milliseconds() {
    let month = 30 * DAY;
    let quota = Quota::token_bucket(1, Duration::from_secs(30 * 86_400)).burst(2);
    table(
        quota,
        &[
            admits(0, 2, 0, 2 * month),
            denies(999, 1, 0, month, 2 * month),
            denies(month - 1, 1, 0, MS, month + MS),
            admits(month, 1, 0, 2 * month),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_largest_limit_is_exact_to_the_tick() {
    let most = 37_529_996;
    let quota = Quota::token_bucket(most, Duration::from_secs(60));
    assert!(Quota::try_token_bucket(most + 1, Duration::from_secs(60)).is_err(), "it is the largest");
    table(
        quota,
        &[
            admits(0, most, 0, 60 * S),
            denies(0, 1, 0, 2, 60 * S),
            denies(1, 1, 0, 1, 60 * S - 1),
            admits(2, 1, 0, 60 * S),
            denies(2, most, 0, 60 * S, 60 * S),
        ],
    )
    .await;
}
