//! Counters outside decisions, and quotas that change.

use super::case::Case;
use super::rows::{S, admits, denies, us};
use super::subject::{Checked, Subject, check, counter_of};
use crate::core::Quota;
use crate::store::Change::{Charge, Refund};
use crate::store::Check;

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    a_counter_can_be_charged_and_refunded_by_hand,
    a_refund_to_an_untouched_counter_gives_nothing,
    a_charge_by_hand_goes_past_the_limit_by_at_most_another_one,
    a_counter_that_is_reset_starts_anew,
    a_reset_finds_a_counter_only_where_there_is_one,
    a_reset_forgets_no_other_counter,
    a_limit_that_changes_keeps_the_units_used,
    a_lowered_limit_has_a_true_time_to_retry,
    another_window_or_algorithm_starts_anew,
    policies_and_keys_are_counted_apart,
];

const WINDOW: Quota = Quota::fixed_window(5, us(60 * S));
const BUCKET: Quota = Quota::token_bucket(5, us(50 * S));

async fn a_counter_can_be_charged_and_refunded_by_hand(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        on.adjust_at(0, quota, Charge(3)).await?;
        on.remaining(0, quota, 2).await?;
        on.adjust_at(0, quota, Refund(1)).await?;
        on.remaining(0, quota, 3).await?;
        on.adjust_at(0, quota, Refund(u64::MAX)).await?;
        on.remaining(0, quota, 5).await?;
    }
    Ok(())
}

async fn a_refund_to_an_untouched_counter_gives_nothing(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        on.at(0)?;
        let refunded = on.adjust(&on.counter(quota), Refund(3)).await?;
        on.equal(refunded.units, 0, || format!("refunded to {quota}"));
        on.adjust_at(0, quota, Charge(0)).await?;
        on.remaining(0, quota, 5).await?;
    }
    Ok(())
}

async fn a_charge_by_hand_goes_past_the_limit_by_at_most_another_one(on: &Subject) -> Checked {
    on.adjust_at(0, BUCKET, Charge(100)).await?;
    on.adjust_at(0, BUCKET, Charge(100)).await?;
    on.run(BUCKET, &[denies(0, 1, 0, 60 * S, 100 * S), admits(60 * S, 1, 0, 50 * S)]).await?;
    on.adjust_at(0, WINDOW, Charge(100)).await?;
    on.adjust_at(0, WINDOW, Refund(6)).await?;
    on.remaining(0, WINDOW, 1).await
}

async fn a_counter_that_is_reset_starts_anew(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        let _ = on.take(0, quota, 5).await?;
        on.reset(quota).await?;
        on.remaining(0, quota, 5).await?;
        on.reset(quota).await?;
    }
    Ok(())
}

async fn a_reset_finds_a_counter_only_where_there_is_one(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        on.next_key();
        on.equal(on.reset(quota).await?, false, || format!("a reset of {quota} that nobody used"));
        let _ = on.take(0, quota, 2).await?;
        on.equal(on.reset(quota).await?, true, || format!("a reset of {quota} after a check"));
    }
    Ok(())
}

async fn a_reset_forgets_no_other_counter(on: &Subject) -> Checked {
    let _ = on.take(0, WINDOW, 2).await?;
    let _ = on.take(0, BUCKET, 2).await?;
    on.reset(BUCKET).await?;
    on.remaining(0, WINDOW, 3).await
}

async fn a_limit_that_changes_keeps_the_units_used(on: &Subject) -> Checked {
    for (quota, higher, lower) in [
        (WINDOW, Quota::fixed_window(10, WINDOW.window()), Quota::fixed_window(2, WINDOW.window())),
        (BUCKET, Quota::token_bucket(10, BUCKET.window()), Quota::token_bucket(2, BUCKET.window())),
        (BUCKET.burst(7), BUCKET.burst(12), BUCKET.burst(1)),
    ] {
        on.reset(quota).await?;
        let _ = on.take(0, quota, 3).await?;
        on.remaining(0, higher, higher.capacity() - 3).await?;
        on.remaining(0, lower, 0).await?;
        on.remaining(0, quota, quota.capacity() - 3).await?;
    }
    Ok(())
}

async fn a_lowered_limit_has_a_true_time_to_retry(on: &Subject) -> Checked {
    let _ = on.take(0, BUCKET, 5).await?;
    let lower = Quota::token_bucket(2, BUCKET.window());
    // Five units used, of which four must return at one in 25 s.
    let rows =
        [denies(0, 1, 0, 100 * S, 125 * S), denies(100 * S - 1, 1, 0, 1, 25 * S + 1), admits(100 * S, 1, 0, 50 * S)];
    on.run(lower, &rows).await
}

async fn another_window_or_algorithm_starts_anew(on: &Subject) -> Checked {
    let _ = on.take(0, WINDOW, 5).await?;
    for other in [
        Quota::fixed_window(5, us(61 * S)),
        // As many milliseconds as the others are microseconds.
        Quota::fixed_window(5, us(60_000 * S)),
        Quota::token_bucket(5, us(60 * S)),
    ] {
        on.remaining(0, other, 5).await?;
        let _ = on.take(0, other, 1).await?;
        on.remaining(0, other, 4).await?;
    }
    on.remaining(0, WINDOW, 0).await
}

async fn policies_and_keys_are_counted_apart(on: &Subject) -> Checked {
    on.at(0)?;
    let other = Check::new(counter_of("other", "ada", WINDOW), 5);
    for check in [check("ada", WINDOW, 5), check("bob", WINDOW, 5), other] {
        let decision = on.decide(std::slice::from_ref(&check)).await?.decision;
        on.holds(decision.is_allowed(), || format!("{check:?} is admitted: {decision:?}"));
    }
    Ok(())
}
