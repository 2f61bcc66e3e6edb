//! The answers of the token bucket.

use super::case::Case;
use super::rows::{DAY, MONTH, MS, S, admits, denies, micros, never, us};
use super::subject::{Checked, Subject};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    no_burst_passes_a_token_bucket_around_the_end_of_a_window,
    a_token_bucket_admits_its_burst_and_refills_evenly,
    gcra_is_the_token_bucket,
    a_token_bucket_answers_every_cost,
    a_token_bucket_leaves_its_floor,
    a_burst_may_be_above_or_below_the_limit,
    a_bucket_that_does_not_divide_its_window_owes_the_fraction,
    units_taken_one_by_one_as_soon_as_they_come_do_not_drift,
    a_token_bucket_is_not_filled_by_a_clock_that_steps_back,
    a_token_bucket_may_be_very_short_or_very_long,
    limits_around_what_is_counted_in_parts_are_exact_to_the_tick,
    a_billion_a_day_of_a_token_bucket_are_exact_to_the_tick,
    a_token_bucket_holds_up_to_a_trillion_over_any_window,
    a_token_bucket_keeps_its_units_used_when_the_limit_changes,
    a_large_limit_may_be_lowered_and_raised_again,
    a_token_bucket_is_refunded_up_to_its_brim,
    a_token_bucket_is_charged_at_most_one_capacity_more_and_pays_it_off,
    a_large_token_bucket_is_refunded_and_charged_exactly,
];

const SIX: Quota = Quota::token_bucket(6, us(60 * S));

/// A billion.
const B: u64 = 1_000_000_000;
const DAILY: Quota = Quota::token_bucket(B, us(DAY));

async fn no_burst_passes_a_token_bucket_around_the_end_of_a_window(on: &Subject) -> Checked {
    let rows = [
        admits(55 * S, 6, 0, 60 * S),
        denies(60 * S, 6, 0, 55 * S, 55 * S),
        denies(60 * S, 1, 0, 5 * S, 55 * S),
        denies(65 * S - 1, 1, 0, 1, 50 * S + 1),
        admits(65 * S, 1, 0, 60 * S),
    ];
    on.table(SIX, &rows).await
}

async fn a_token_bucket_admits_its_burst_and_refills_evenly(on: &Subject) -> Checked {
    let rows = [
        admits(0, 1, 5, 10 * S),
        admits(0, 5, 0, 60 * S),
        denies(0, 1, 0, 10 * S, 60 * S),
        denies(0, 6, 0, 60 * S, 60 * S),
        denies(10 * S - 1, 1, 0, 1, 50 * S + 1),
        admits(10 * S, 1, 0, 60 * S),
        denies(25 * S, 2, 1, 5 * S, 45 * S),
        denies(30 * S - 1, 2, 1, 1, 40 * S + 1),
        admits(30 * S, 2, 0, 60 * S),
        admits(60 * S, 0, 3, 30 * S),
        admits(90 * S, 0, 6, 0),
        admits(1_000 * S, 6, 0, 60 * S),
    ];
    on.table(SIX, &rows).await
}

async fn gcra_is_the_token_bucket(on: &Subject) -> Checked {
    let gcra = Quota::gcra(6, us(60 * S));
    on.run(SIX, &[admits(0, 6, 0, 60 * S)]).await?;
    on.run(gcra, &[denies(0, 1, 0, 10 * S, 60 * S)]).await
}

async fn a_token_bucket_answers_every_cost(on: &Subject) -> Checked {
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
    on.table(SIX, &rows).await
}

async fn a_token_bucket_leaves_its_floor(on: &Subject) -> Checked {
    let rows = [
        never(0, 7, 6, 0).floor(4),
        admits(0, 5, 1, 30 * S).floor(4),
        denies(0, 2, 1, 6 * S, 30 * S).floor(4),
        admits(0, 1, 0, 36 * S).floor(4),
        denies(0, 1, 0, 6 * S, 36 * S).floor(4),
        denies(6 * S - 1, 1, 0, 1, 30 * S + 1).floor(4),
        admits(6 * S, 1, 0, 36 * S).floor(4),
        never(6 * S, 1, 0, 36 * S).floor(10),
        never(6 * S, 1, 0, 36 * S).floor(u64::MAX),
        admits(6 * S, 0, 0, 36 * S).floor(10),
        admits(6 * S, 4, 0, 60 * S),
    ];
    on.table(Quota::token_bucket(10, us(60 * S)), &rows).await
}

async fn a_burst_may_be_above_or_below_the_limit(on: &Subject) -> Checked {
    let above = [
        admits(0, 12, 0, 120 * S),
        denies(0, 1, 0, 10 * S, 120 * S),
        denies(0, 2, 0, 20 * S, 120 * S),
        denies(0, 12, 0, 120 * S, 120 * S),
        never(0, 13, 0, 120 * S),
        denies(10 * S - 1, 1, 0, 1, 110 * S + 1),
        admits(10 * S, 1, 0, 120 * S),
    ];
    on.table(SIX.burst(12), &above).await?;
    let below = [
        never(0, 3, 2, 0),
        admits(0, 2, 0, 20 * S),
        denies(10 * S - 1, 1, 0, 1, 10 * S + 1),
        admits(10 * S, 1, 0, 20 * S),
        never(10 * S, 3, 0, 20 * S),
        admits(500 * S, 2, 0, 20 * S),
    ];
    on.table(SIX.burst(2), &below).await
}

async fn a_bucket_that_does_not_divide_its_window_owes_the_fraction(on: &Subject) -> Checked {
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
    on.table(seven, &rows).await
}

async fn units_taken_one_by_one_as_soon_as_they_come_do_not_drift(on: &Subject) -> Checked {
    let seven = Quota::token_bucket(7, us(60 * S));
    let mut now = 0;
    let _ = on.take(now, seven, 7).await?;
    for _ in 0..70 {
        on.at(now)?;
        let refused = on.decide(&[on.check(seven, 1)]).await?.decision;
        now += refused.retry_after().map_or(1, micros);
        let _ = on.take(now, seven, 1).await?;
    }
    on.equal(now, 600 * S, || "70 units return in ten windows");
    Ok(())
}

async fn a_token_bucket_is_not_filled_by_a_clock_that_steps_back(on: &Subject) -> Checked {
    let rows = [
        admits(100 * S, 6, 0, 60 * S),
        denies(70 * S, 1, 0, 40 * S, 90 * S),
        denies(40 * S, 1, 0, 70 * S, 120 * S),
        denies(110 * S - 1, 1, 0, 1, 50 * S + 1),
        // Further ahead than its window, it counts as new.
        admits(40 * S - 1, 1, 5, 10 * S),
    ];
    on.table(SIX, &rows).await?;
    let rows = [
        admits(600 * S, 1, 5, 10 * S),
        admits(580 * S, 1, 4, 40 * S),
        admits(600 * S, 4, 0, 60 * S),
        denies(570 * S, 1, 0, 40 * S, 90 * S),
        admits(610 * S, 1, 0, 60 * S),
        denies(590 * S, 1, 0, 30 * S, 80 * S),
        admits(650 * S, 4, 0, 60 * S),
    ];
    on.table(SIX, &rows).await
}

async fn a_token_bucket_may_be_very_short_or_very_long(on: &Subject) -> Checked {
    let tiny = Quota::token_bucket(2, us(1)).burst(6);
    on.table(tiny, &[never(0, 7, 6, 0), admits(S, 6, 0, 3), admits(2 * S, 6, 0, 3)]).await?;
    // Redis forgets such a bucket after a real millisecond.
    let rows = [admits(0, 6, 0, 3), denies(0, 1, 0, 1, 3), denies(0, 5, 0, 3, 3), admits(1, 2, 0, 3)];
    on.table_by_clock(tiny, &rows).await?;
    let rows = [
        admits(0, 2, 0, MONTH),
        denies(999, 1, 0, MONTH / 2, MONTH),
        denies(MONTH / 2 - 1, 1, 0, MS, MONTH / 2 + MS),
        admits(MONTH / 2, 1, 0, MONTH),
    ];
    on.table(Quota::token_bucket(2, us(MONTH)), &rows).await
}

async fn limits_around_what_is_counted_in_parts_are_exact_to_the_tick(on: &Subject) -> Checked {
    // Levels of the second one reach 2^52.
    for most in [37_529_996, 37_529_997] {
        let rows = [
            admits(0, most, 0, 60 * S),
            denies(0, 1, 0, 2, 60 * S),
            denies(1, 1, 0, 1, 60 * S - 1),
            admits(2, 1, 0, 60 * S),
            denies(2, most, 0, 60 * S, 60 * S),
        ];
        on.table(Quota::token_bucket(most, us(60 * S)), &rows).await?;
    }
    Ok(())
}

async fn a_billion_a_day_of_a_token_bucket_are_exact_to_the_tick(on: &Subject) -> Checked {
    let rows = [
        admits(0, B, 0, DAY),
        // A tick refills 11.6 units.
        denies(0, 1_000, 0, 87 * MS, DAY),
        denies(0, 1, 0, MS, DAY),
        denies(999, 1, 0, MS, DAY),
        admits(MS, 1, 10, DAY),
        denies(MS, 11, 10, MS, DAY),
        denies(DAY / 2, B / 2, B / 2 - 1, MS, DAY / 2 + MS),
        never(DAY / 2, B + 1, B / 2 - 1, DAY / 2 + MS),
    ];
    on.table(DAILY, &rows).await?;
    let rows = [
        admits(0, B / 2, B / 2, DAY / 2),
        denies(0, B / 2, B / 2 - 100, 9 * MS, DAY / 2).floor(100),
        admits(0, B / 2 - 100, 0, DAY - 8 * MS).floor(100),
    ];
    on.table(DAILY, &rows).await
}

async fn a_token_bucket_holds_up_to_a_trillion_over_any_window(on: &Subject) -> Checked {
    let (hundred_million, trillion, year) = (100_000_000, 1_000_000_000_000, 366 * DAY);
    let rows = [
        admits(0, hundred_million, 0, 60 * S),
        denies(0, 1, 0, 1, 60 * S),
        admits(1, 1, 0, 60 * S),
        denies(1, 1, 0, 1, 60 * S),
        denies(30 * S, hundred_million / 2, hundred_million / 2 - 1, 1, 30 * S + 1),
        admits(30 * S, 1, hundred_million / 2 - 2, 30 * S + 2),
        // The clock steps back.
        denies(20 * S, hundred_million / 2, hundred_million / 2 - 2, 10 * S + 2, 40 * S + 2),
    ];
    on.table(Quota::token_bucket(hundred_million, us(60 * S)), &rows).await?;
    let rows = [
        admits(0, trillion, 0, year),
        denies(0, 1, 0, MS, year),
        admits(MS, 1, 30, year),
        denies(MS, trillion, 30, year, year),
        denies(MS, 31_623, 30, S, year),
    ];
    on.table(Quota::token_bucket(trillion, us(year)), &rows).await
}

async fn a_token_bucket_keeps_its_units_used_when_the_limit_changes(on: &Subject) -> Checked {
    on.run(SIX, &[admits(0, 5, 1, 50 * S)]).await?;
    let (less, more) = (Quota::token_bucket(2, us(60 * S)), Quota::token_bucket(12, us(60 * S)));
    on.run(less, &[denies(0, 1, 0, 120 * S, 150 * S), never(0, 3, 0, 150 * S)]).await?;
    on.run(SIX.burst(20), &[admits(0, 0, 15, 50 * S)]).await?;
    on.run(more, &[admits(0, 5, 2, 50 * S)]).await?;
    on.run(SIX, &[denies(0, 1, 0, 50 * S, 100 * S)]).await
}

async fn a_large_limit_may_be_lowered_and_raised_again(on: &Subject) -> Checked {
    let small = Quota::token_bucket(100, us(DAY));
    on.run(DAILY, &[admits(0, 300_000_000, 700_000_000, 25_920 * S)]).await?;
    // Of so many units it is only known that they are more than twice what this one holds.
    on.run(small, &[denies(0, 1, 0, 45_035_909_873_705 * MS, 45_035_995_409_705 * MS)]).await?;
    on.run(DAILY, &[admits(0, 0, 700_000_000, 25_920 * S)]).await?;
    on.next_key();
    on.run(small, &[admits(0, 60, 40, 51_840 * S)]).await?;
    on.run(DAILY, &[admits(0, 0, B - 60, 6 * MS), admits(0, B - 60, 0, DAY)]).await
}

async fn a_token_bucket_is_refunded_up_to_its_brim(on: &Subject) -> Checked {
    let taken = on.take(0, SIX, 4).await?;
    on.settle_at(10 * S, taken, Refund(2)).await?;
    on.run(SIX, &[admits(10 * S, 0, 5, 10 * S), admits(10 * S, 3, 2, 40 * S)]).await?;
    let taken = on.take(10 * S, SIX, 1).await?;
    on.settle_at(10 * S, taken, Refund(9)).await?;
    on.run(SIX, &[admits(10 * S, 0, 2, 40 * S)]).await?;
    on.adjust_at(45 * S, SIX, Refund(u64::MAX)).await?;
    on.run(SIX, &[admits(45 * S, 6, 0, 60 * S)]).await
}

async fn a_token_bucket_is_charged_at_most_one_capacity_more_and_pays_it_off(on: &Subject) -> Checked {
    let quota = SIX.burst(3);
    let taken = on.take(0, quota, 1).await?;
    on.settle_at(0, taken, Charge(u64::MAX)).await?;
    let rows = [denies(0, 1, 0, 40 * S, 60 * S), denies(40 * S - 1, 1, 0, 1, 20 * S + 1), admits(40 * S, 1, 0, 30 * S)];
    on.run(quota, &rows).await
}

async fn a_large_token_bucket_is_refunded_and_charged_exactly(on: &Subject) -> Checked {
    let taken = on.take(0, DAILY, B).await?;
    on.settle_at(0, taken, Refund(B / 4)).await?;
    on.run(DAILY, &[admits(0, 0, B / 4, DAY / 4 * 3), admits(0, B / 4, 0, DAY)]).await?;
    on.reset(DAILY).await?;
    let _ = on.take(0, DAILY, B / 2).await?;
    let taken = on.take(0, DAILY, B / 2).await?;
    // Without the eleven units that were refilled since.
    on.settle_at(MS, taken, Refund(B / 2)).await?;
    on.run(DAILY, &[admits(MS, 0, B / 2, DAY / 2), admits(MS, 1, B / 2 - 1, DAY / 2 + MS)]).await?;
    let taken = on.take(MS, DAILY, 1).await?;
    on.settle_at(MS, taken, Charge(u64::MAX)).await?;
    on.run(DAILY, &[denies(MS, 1, 0, DAY + MS, 2 * DAY)]).await?;
    on.adjust_at(MS, DAILY, Refund(u64::MAX)).await?;
    on.run(DAILY, &[admits(MS, B, 0, DAY)]).await
}
