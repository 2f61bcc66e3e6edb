//! The answers of the fixed window.

use std::time::Duration;

use tollgate::Quota;

use super::rows::{DAY, MS, S, admits, denies, never, run, table};
use super::subject::Subject;
use crate::support::clock::EPOCH_US;

const THREE_A_MINUTE: Quota = Quota::fixed_window(3, Duration::from_secs(60));

#[tokio::test]
async fn a_window_admits_its_limit_and_starts_anew_at_its_end() {
    table(
        THREE_A_MINUTE,
        &[
            admits(0, 1, 2, 60 * S),
            admits(10 * S, 1, 1, 50 * S),
            denies(10 * S, 2, 1, 50 * S, 50 * S),
            admits(20 * S, 1, 0, 40 * S),
            denies(20 * S, 1, 0, 40 * S, 40 * S),
            denies(60 * S - 1, 1, 0, 1, 1),
            admits(60 * S, 1, 2, 60 * S),
            admits(60 * S, 2, 0, 60 * S),
            admits(1_000 * S, 1, 2, 20 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn windows_are_aligned_to_the_epoch_and_not_to_the_first_request() {
    table(
        THREE_A_MINUTE,
        &[admits(45 * S, 3, 0, 15 * S), denies(60 * S - 1, 3, 0, 1, 1), admits(60 * S, 3, 0, 60 * S)],
    )
    .await;
    let length = 7 * 3_600 * S;
    let left = length - EPOCH_US % length;
    assert_ne!(left, length, "the clock starts within a window");
    let seven_hours = Quota::fixed_window(2, Duration::from_micros(length));
    table(seven_hours, &[admits(0, 2, 0, left), denies(left - S, 1, 0, S, S), admits(left, 2, 0, length)]).await;
}

#[tokio::test]
async fn a_look_takes_nothing_and_always_fits() {
    table(
        THREE_A_MINUTE,
        &[
            admits(0, 0, 3, 0),
            admits(0, 3, 0, 60 * S),
            admits(S, 0, 0, 59 * S),
            denies(S, 1, 0, 59 * S, 59 * S),
            admits(60 * S, 0, 3, 0),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_cost_above_the_limit_is_denied_without_a_time_to_retry() {
    table(
        THREE_A_MINUTE,
        &[never(0, 4, 3, 0), admits(0, 1, 2, 60 * S), never(0, 4, 2, 60 * S), never(0, u64::MAX, 2, 60 * S)],
    )
    .await;
}

#[tokio::test]
async fn a_floor_is_left_to_those_who_may_have_it() {
    let ten = Quota::fixed_window(10, Duration::from_secs(60));
    table(
        ten,
        &[
            never(0, 7, 6, 0).floor(4),
            admits(0, 5, 1, 60 * S).floor(4),
            denies(0, 2, 1, 60 * S, 60 * S).floor(4),
            admits(0, 1, 0, 60 * S).floor(4),
            denies(0, 1, 0, 60 * S, 60 * S).floor(4),
            never(0, 1, 0, 60 * S).floor(10),
            never(0, 1, 0, 60 * S).floor(u64::MAX),
            admits(0, 0, 0, 60 * S).floor(4),
            admits(0, 4, 0, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_clock_that_steps_back_stays_in_the_window_it_left() {
    let two = Quota::fixed_window(2, Duration::from_secs(60));
    table(
        two,
        &[
            admits(670 * S, 1, 1, 50 * S),
            admits(650 * S, 1, 0, 70 * S),
            denies(650 * S, 1, 0, 70 * S, 70 * S),
            denies(600 * S, 1, 0, 120 * S, 120 * S),
            denies(720 * S - 1, 1, 0, 1, 1),
            admits(720 * S, 1, 1, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_window_further_ahead_than_its_length_counts_as_new() {
    let two = Quota::fixed_window(2, Duration::from_secs(60));
    table(
        two,
        &[
            admits(670 * S, 2, 0, 50 * S),
            denies(600 * S, 1, 0, 120 * S, 120 * S),
            admits(590 * S, 1, 1, 10 * S),
            admits(600 * S, 1, 1, 60 * S),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_window_of_a_microsecond_lasts_that_long() {
    let tiny = Quota::fixed_window(2, Duration::from_micros(1));
    table(tiny, &[never(0, 3, 2, 0), admits(S, 2, 0, 1), admits(S + 1, 2, 0, 1)]).await;
    // Redis forgets such a window after a real millisecond, so only memory can be asked at leisure.
    let rows = [admits(0, 1, 1, 1), denies(0, 2, 1, 1, 1), admits(1, 2, 0, 1), denies(1, 1, 0, 1, 1)];
    run(&Subject::memory(), tiny, &rows).await;
}

#[tokio::test]
async fn a_window_of_a_month_counts_in_milliseconds() {
    let monthly = Quota::fixed_window(1_000, Duration::from_secs(30 * 86_400));
    let month = 30 * DAY;
    table(
        monthly,
        &[
            admits(0, 999, 1, month),
            admits(DAY, 1, 0, month - DAY),
            denies(DAY + 999, 1, 0, month - DAY, month - DAY),
            denies(month - 1, 1, 0, MS, MS),
            admits(month, 1_000, 0, month),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_largest_limit_is_counted_to_the_unit() {
    let most = (1 << 49) - 1;
    let quota = Quota::fixed_window(most, Duration::from_secs(60));
    table(
        quota,
        &[
            admits(0, most - 1, 1, 60 * S),
            denies(0, 2, 1, 60 * S, 60 * S),
            admits(0, 1, 0, 60 * S),
            never(0, most + 1, 0, 60 * S),
        ],
    )
    .await;
}
