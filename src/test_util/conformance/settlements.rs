//! Refunds and charges after the fact.

use super::case::Case;
use super::rows::{S, admits, denies, us};
use super::subject::{Checked, Subject, check};
use crate::core::{Outcome, Quota};
use crate::store::Change::{Charge, Refund};
use crate::store::{Answer, Ask, MemoryStore, Mode, Settlement, Store};

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    a_refund_gives_back_what_was_taken,
    a_refund_never_gives_back_more_than_was_taken,
    a_refund_of_a_window_that_is_over_gives_nothing_to_the_next,
    a_refund_within_its_window_counts_until_the_last_tick,
    a_refund_fills_a_bucket_to_its_brim_and_not_beyond,
    a_charge_takes_more_than_the_request_did,
    a_charge_past_the_limit_is_carried_for_the_rest_of_the_window,
    a_charge_puts_a_bucket_into_debt_by_at_most_its_capacity,
    a_settlement_changes_the_check_it_names_and_no_other,
    a_shadow_check_that_took_nothing_has_nothing_to_give_back,
    settling_without_changes_keeps_what_was_taken,
    a_receipt_of_another_store_is_ignored,
];

const WINDOW: Quota = Quota::fixed_window(5, us(60 * S));
const BUCKET: Quota = Quota::token_bucket(5, us(50 * S));

async fn a_refund_gives_back_what_was_taken(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        let taken = on.take(0, quota, 3).await?;
        let applied = on.settle_all(taken, &[Settlement::new(0, Refund(2))]).await?;
        on.equal(applied.first().map(|applied| applied.units), Some(2), || format!("refunded to {quota}"));
        on.remaining(0, quota, 4).await?;
    }
    Ok(())
}

async fn a_refund_never_gives_back_more_than_was_taken(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        let _ = on.take(0, quota, 2).await?;
        let taken = on.take(0, quota, 1).await?;
        on.settle(taken, Refund(u64::MAX)).await?;
        on.remaining(0, quota, 3).await?;
    }
    Ok(())
}

async fn a_refund_of_a_window_that_is_over_gives_nothing_to_the_next(on: &Subject) -> Checked {
    let late = on.take(59 * S, WINDOW, 3).await?;
    let _ = on.take(60 * S, WINDOW, 3).await?;
    on.settle(late, Refund(3)).await?;
    on.remaining(60 * S, WINDOW, 2).await
}

async fn a_refund_within_its_window_counts_until_the_last_tick(on: &Subject) -> Checked {
    let taken = on.take(60 * S, WINDOW, 5).await?;
    on.settle_at(120 * S - 1, taken, Refund(5)).await?;
    on.run(WINDOW, &[admits(100 * S, 5, 0, 20 * S), denies(100 * S, 1, 0, 20 * S, 20 * S)]).await
}

async fn a_refund_fills_a_bucket_to_its_brim_and_not_beyond(on: &Subject) -> Checked {
    let taken = on.take(0, BUCKET, 4).await?;
    on.settle_at(30 * S, taken, Refund(4)).await?;
    on.remaining(30 * S, BUCKET, 5).await?;
    on.run(BUCKET, &[admits(30 * S, 5, 0, 50 * S)]).await
}

async fn a_charge_takes_more_than_the_request_did(on: &Subject) -> Checked {
    for quota in [WINDOW, BUCKET] {
        let taken = on.take(0, quota, 1).await?;
        let applied = on.settle_all(taken, &[Settlement::new(0, Charge(3))]).await?;
        on.equal(applied.first().map(|applied| applied.units), Some(3), || format!("charged to {quota}"));
        on.remaining(0, quota, 1).await?;
    }
    Ok(())
}

async fn a_charge_past_the_limit_is_carried_for_the_rest_of_the_window(on: &Subject) -> Checked {
    let taken = on.take(0, WINDOW, 1).await?;
    on.settle(taken, Charge(100)).await?;
    on.run(WINDOW, &[denies(10 * S, 1, 0, 50 * S, 50 * S), admits(60 * S, 5, 0, 60 * S)]).await
}

async fn a_charge_puts_a_bucket_into_debt_by_at_most_its_capacity(on: &Subject) -> Checked {
    let taken = on.take(0, BUCKET, 1).await?;
    on.settle(taken, Charge(u64::MAX)).await?;
    let rows =
        [denies(0, 1, 0, 60 * S, 100 * S), denies(60 * S - 1, 1, 0, 1, 40 * S + 1), admits(60 * S, 1, 0, 50 * S)];
    on.run(BUCKET, &rows).await
}

async fn a_settlement_changes_the_check_it_names_and_no_other(on: &Subject) -> Checked {
    on.at(0)?;
    let decided = on.decide(&[check("a", WINDOW, 2), check("b", BUCKET, 2)]).await?;
    on.settle_all(decided, &[Settlement::new(1, Refund(1)), Settlement::new(2, Refund(1))]).await?;
    let left = on.decide(&[check("a", WINDOW, 0), check("b", BUCKET, 0)]).await?.decision;
    let left: Vec<u64> = left.outcomes().iter().map(Outcome::remaining).collect();
    on.equal(&*left, &[3, 4][..], || "remaining");
    Ok(())
}

async fn a_shadow_check_that_took_nothing_has_nothing_to_give_back(on: &Subject) -> Checked {
    let _ = on.take(0, WINDOW, 4).await?;
    let decided = on.decide(&[on.check(WINDOW, 3).mode(Mode::Shadow)]).await?;
    on.settle(decided, Refund(3)).await?;
    on.remaining(0, WINDOW, 1).await
}

async fn settling_without_changes_keeps_what_was_taken(on: &Subject) -> Checked {
    let taken = on.take(0, WINDOW, 2).await?;
    on.settle_all(taken, &[]).await?;
    on.remaining(0, WINDOW, 3).await
}

async fn a_receipt_of_another_store_is_ignored(on: &Subject) -> Checked {
    let other = MemoryStore::new();
    let _ = on.take(0, BUCKET, 3).await?;
    if let Answer::Ready(Ok(foreign)) = other.decide(&[on.check(BUCKET, 1)], Ask::default()) {
        on.settle(foreign, Refund(1)).await?;
    }
    on.remaining(0, BUCKET, 2).await
}
