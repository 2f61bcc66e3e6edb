//! The answers of the leaky bucket.

use super::case::Case;
use super::rows::{DAY, MONTH, MS, S, admits, denies, never, us};
use super::subject::{Checked, Subject};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    no_burst_passes_a_leaky_bucket_around_the_end_of_a_window,
    a_queue_gives_each_request_its_slot,
    a_large_request_starts_at_its_first_slot_and_takes_them_all,
    a_leaky_bucket_answers_every_cost,
    a_leaky_bucket_leaves_its_floor,
    slots_that_do_not_divide_the_window_do_not_drift,
    a_leaky_bucket_is_not_opened_by_a_clock_that_steps_back,
    a_leaky_bucket_may_be_very_short_or_very_long,
    a_leaky_bucket_keeps_its_slots_when_the_limit_or_queue_changes,
    only_the_last_in_line_of_a_leaky_bucket_is_refunded,
    a_slot_that_has_passed_is_not_refunded,
    a_leaky_bucket_is_charged_at_most_one_capacity_more,
    a_billion_places_of_a_leaky_bucket_are_exact_to_the_tick,
    only_the_last_in_a_long_line_are_refunded,
    the_first_of_a_leaky_bucket_start_at_once_and_the_others_are_spaced,
    as_many_at_once_as_there_are_places_never_wait,
    a_leaky_bucket_keeps_its_backlog_when_others_start_at_once,
    one_that_started_at_once_is_refunded_if_it_is_the_last,
];

const STRICT: Quota = Quota::leaky_bucket(6, us(60 * S));
const QUEUED: Quota = STRICT.queue(2);

/// A slot every 10 s; the third request still starts at once.
const TWO: Quota = STRICT.queue(4).at_once(3);

/// A billion.
const B: u64 = 1_000_000_000;
const LONG: Quota = Quota::leaky_bucket(B, us(DAY)).queue(B - 1);

async fn no_burst_passes_a_leaky_bucket_around_the_end_of_a_window(on: &Subject) -> Checked {
    let rows = [
        admits(59 * S, 1, 0, 10 * S),
        denies(60 * S, 1, 0, 9 * S, 9 * S),
        denies(69 * S - 1, 1, 0, 1, 1),
        admits(69 * S, 1, 0, 10 * S),
    ];
    on.table(STRICT, &rows).await
}

async fn a_queue_gives_each_request_its_slot(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 2, 10 * S),
        admits(0, 1, 1, 20 * S).delay(10 * S),
        admits(5 * S, 1, 0, 25 * S).delay(15 * S),
        denies(5 * S, 1, 0, 5 * S, 25 * S),
        denies(10 * S - 1, 1, 0, 1, 20 * S + 1),
        admits(10 * S, 1, 0, 30 * S).delay(20 * S),
        admits(40 * S, 1, 2, 10 * S),
    ];
    on.table(QUEUED, &rows).await?;
    on.table(QUEUED.at_once(1), &rows).await
}

async fn a_large_request_starts_at_its_first_slot_and_takes_them_all(on: &Subject) -> Checked {
    let rows = [
        admits(0, 3, 0, 30 * S),
        denies(0, 3, 0, 10 * S, 30 * S),
        denies(0, 1, 0, 10 * S, 30 * S),
        admits(10 * S, 3, 0, 50 * S).delay(20 * S),
        denies(10 * S, 1, 0, 30 * S, 50 * S),
        never(10 * S, 4, 0, 50 * S),
    ];
    on.table(QUEUED, &rows).await
}

async fn a_leaky_bucket_answers_every_cost(on: &Subject) -> Checked {
    let rows = [
        admits(0, 0, 1, 0),
        never(0, 2, 1, 0),
        never(0, u64::MAX, 1, 0),
        admits(0, 1, 0, 10 * S),
        admits(S, 0, 0, 9 * S),
        denies(S, 1, 0, 9 * S, 9 * S),
        never(S, 2, 0, 9 * S),
    ];
    on.table(STRICT, &rows).await
}

async fn a_leaky_bucket_leaves_its_floor(on: &Subject) -> Checked {
    let rows = [
        never(0, 3, 2, 0).floor(1),
        admits(0, 1, 1, 10 * S).floor(1),
        admits(0, 1, 0, 20 * S).floor(1).delay(10 * S),
        denies(0, 1, 0, 10 * S, 20 * S).floor(1),
        never(0, 1, 0, 20 * S).floor(u64::MAX),
        admits(0, 0, 0, 20 * S).floor(3),
        admits(0, 1, 0, 30 * S).delay(20 * S),
    ];
    on.table(QUEUED, &rows).await
}

async fn slots_that_do_not_divide_the_window_do_not_drift(on: &Subject) -> Checked {
    let seven = Quota::leaky_bucket(7, us(60 * S)).queue(7);
    let rows = [
        admits(0, 1, 7, 8_571_429),
        admits(0, 1, 6, 17_142_858).delay(8_571_429),
        admits(0, 1, 5, 25_714_286).delay(17_142_858),
        admits(0, 4, 1, 60 * S).delay(25_714_286),
        admits(0, 1, 0, 68_571_429).delay(60 * S),
        denies(0, 1, 0, 8_571_429, 68_571_429),
    ];
    on.table(seven, &rows).await
}

async fn a_leaky_bucket_is_not_opened_by_a_clock_that_steps_back(on: &Subject) -> Checked {
    let rows = [
        admits(100 * S, 1, 0, 10 * S),
        denies(70 * S, 1, 0, 40 * S, 40 * S),
        denies(40 * S, 1, 0, 70 * S, 70 * S),
        admits(40 * S - 1, 1, 0, 10 * S),
    ];
    on.table(STRICT, &rows).await?;
    let queued = [admits(100 * S, 1, 2, 10 * S), admits(90 * S, 1, 1, 30 * S).delay(20 * S)];
    on.table(QUEUED, &queued).await
}

async fn a_leaky_bucket_may_be_very_short_or_very_long(on: &Subject) -> Checked {
    let tiny = [admits(0, 1, 0, 1), denies(0, 1, 0, 1, 1), admits(1, 1, 0, 1)];
    on.table_by_clock(Quota::leaky_bucket(1, us(1)), &tiny).await?;
    let rows = [
        admits(0, 1, 0, MONTH / 2),
        denies(999, 1, 0, MONTH / 2, MONTH / 2),
        denies(MONTH / 2 - 1, 1, 0, MS, MS),
        admits(MONTH / 2, 1, 0, MONTH / 2),
    ];
    on.table(Quota::leaky_bucket(2, us(MONTH)), &rows).await
}

async fn a_leaky_bucket_keeps_its_slots_when_the_limit_or_queue_changes(on: &Subject) -> Checked {
    on.run(QUEUED, &[admits(0, 3, 0, 30 * S)]).await?;
    on.run(STRICT, &[denies(0, 1, 0, 30 * S, 30 * S)]).await?;
    on.run(STRICT.queue(5), &[admits(0, 1, 2, 40 * S).delay(30 * S)]).await?;
    let slower = Quota::leaky_bucket(3, us(60 * S)).queue(4);
    on.run(slower, &[admits(0, 1, 0, 100 * S).delay(80 * S)]).await
}

async fn only_the_last_in_line_of_a_leaky_bucket_is_refunded(on: &Subject) -> Checked {
    let (first, last) = (on.take(0, QUEUED, 1).await?, on.take(0, QUEUED, 1).await?);
    on.settle_at(0, first, Refund(1)).await?;
    on.run(QUEUED, &[admits(0, 0, 1, 20 * S)]).await?;
    on.settle_at(5 * S, last, Refund(9)).await?;
    on.run(QUEUED, &[admits(5 * S, 0, 2, 5 * S)]).await?;
    on.adjust_at(5 * S, QUEUED, Refund(u64::MAX)).await?;
    on.run(QUEUED, &[admits(5 * S, 3, 0, 30 * S)]).await
}

async fn a_slot_that_has_passed_is_not_refunded(on: &Subject) -> Checked {
    let gone = on.take(0, QUEUED, 1).await?;
    let _ = on.take(20 * S, QUEUED, 1).await?;
    on.settle_at(20 * S, gone, Refund(1)).await?;
    on.run(QUEUED, &[admits(20 * S, 0, 2, 10 * S)]).await
}

async fn a_leaky_bucket_is_charged_at_most_one_capacity_more(on: &Subject) -> Checked {
    let taken = on.take(0, QUEUED, 1).await?;
    on.settle_at(0, taken, Charge(u64::MAX)).await?;
    let rows = [
        denies(0, 1, 0, 40 * S, 60 * S),
        denies(40 * S - 1, 1, 0, 1, 20 * S + 1),
        admits(40 * S, 1, 0, 30 * S).delay(20 * S),
    ];
    on.run(QUEUED, &rows).await
}

async fn a_billion_places_of_a_leaky_bucket_are_exact_to_the_tick(on: &Subject) -> Checked {
    let rows = [
        admits(0, B, 0, DAY),
        denies(0, 1, 0, MS, DAY),
        admits(DAY / 2, 1, B / 2 - 1, DAY / 2 + MS).delay(DAY / 2),
        // The clock steps back.
        admits(DAY / 2 - S, 1, B / 2 - 2, DAY / 2 + S + MS).delay(DAY / 2 + S + MS),
        never(DAY / 2, B + 1, B / 2 - 2, DAY / 2 + MS),
    ];
    on.table(LONG, &rows).await?;
    // Its limit is large, and its queue is not.
    let strict = Quota::leaky_bucket(1_000_000_000_000, us(366 * DAY));
    on.table(strict, &[admits(0, 1, 0, MS), denies(0, 1, 0, MS, MS), admits(MS, 1, 0, MS)]).await
}

async fn only_the_last_in_a_long_line_are_refunded(on: &Subject) -> Checked {
    let (first, last) = (on.take(0, LONG, B / 2).await?, on.take(0, LONG, B / 4).await?);
    on.settle_at(0, first, Refund(B / 2)).await?;
    on.run(LONG, &[admits(0, 0, B / 4, DAY / 4 * 3)]).await?;
    on.settle_at(S, last, Refund(B)).await?;
    on.run(LONG, &[admits(S, 0, B / 2 + 11_574, DAY / 2 - S)]).await?;
    let taken = on.take(S, LONG, 1).await?;
    on.settle_at(S, taken, Charge(u64::MAX)).await?;
    on.run(LONG, &[admits(S, 0, 0, 2 * DAY)]).await?;
    on.adjust_at(S, LONG, Refund(u64::MAX)).await?;
    on.run(LONG, &[admits(S, B, 0, DAY)]).await
}

async fn the_first_of_a_leaky_bucket_start_at_once_and_the_others_are_spaced(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 4, 10 * S),
        admits(0, 1, 3, 20 * S),
        admits(0, 1, 2, 30 * S),
        admits(0, 1, 1, 40 * S).delay(10 * S),
        admits(0, 1, 0, 50 * S).delay(20 * S),
        denies(0, 1, 0, 10 * S, 50 * S),
        denies(5 * S, 1, 0, 5 * S, 45 * S),
        admits(10 * S, 1, 0, 50 * S).delay(20 * S),
        denies(10 * S, 1, 0, 10 * S, 50 * S),
        // After a pause a large request starts at once, and takes three slots.
        admits(70 * S, 3, 2, 30 * S),
        admits(70 * S, 1, 1, 40 * S).delay(10 * S),
        admits(70 * S, 1, 0, 50 * S).delay(20 * S),
        // The clock steps back.
        denies(65 * S, 1, 0, 15 * S, 55 * S),
        never(70 * S, 6, 0, 50 * S),
        admits(200 * S, 5, 0, 50 * S),
        denies(200 * S, 1, 0, 10 * S, 50 * S),
    ];
    on.table(TWO, &rows).await
}

async fn as_many_at_once_as_there_are_places_never_wait(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 2, 10 * S),
        admits(0, 1, 1, 20 * S),
        admits(0, 1, 0, 30 * S),
        denies(0, 1, 0, 10 * S, 30 * S),
        admits(15 * S, 1, 0, 25 * S),
    ];
    on.table(QUEUED.at_once(3), &rows).await?;
    // Of a billion places, half.
    let rows = [admits(0, B / 2, B / 2, DAY / 2), admits(0, 2, B / 2 - 2, DAY / 2 + MS).delay(MS)];
    on.table(LONG.at_once(B / 2), &rows).await
}

async fn a_leaky_bucket_keeps_its_backlog_when_others_start_at_once(on: &Subject) -> Checked {
    on.run(TWO, &[admits(0, 4, 1, 40 * S)]).await?;
    on.run(TWO.at_once(1), &[admits(0, 0, 1, 40 * S)]).await?;
    on.run(TWO.at_once(1), &[admits(0, 1, 0, 50 * S).delay(40 * S)]).await?;
    on.run(TWO.at_once(5), &[admits(10 * S, 1, 0, 50 * S)]).await
}

async fn one_that_started_at_once_is_refunded_if_it_is_the_last(on: &Subject) -> Checked {
    let (_, second, third) = (on.take(0, TWO, 1).await?, on.take(0, TWO, 1).await?, on.take(0, TWO, 1).await?);
    on.settle_at(0, second, Refund(1)).await?;
    on.run(TWO, &[admits(0, 0, 2, 30 * S)]).await?;
    on.settle_at(0, third, Refund(1)).await?;
    on.run(TWO, &[admits(0, 0, 3, 20 * S)]).await
}
