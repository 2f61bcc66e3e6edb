//! Refunds and charges after the fact.

use std::time::Duration;

use tollgate::store::Change::{Charge, Refund};
use tollgate::store::{Deadline, Mode, Settlement};
use tollgate::{MemoryStore, Outcome, Quota, Store};

use crate::algorithms::rows::{S, admits, denies, run};
use crate::algorithms::subject::{KEY, Subject, on_each_store};
use crate::support::checks::check;

const WINDOW: Quota = Quota::fixed_window(5, Duration::from_secs(60));
const BUCKET: Quota = Quota::token_bucket(5, Duration::from_secs(50));

async fn assert_remaining(subject: &Subject, now: u64, quota: Quota, expected: u64) {
    assert_eq!(subject.remaining(now, quota).await, expected, "{}: {quota} at {now}", subject.name);
}

#[tokio::test]
async fn a_refund_gives_back_what_was_taken() {
    on_each_store(async |subject| {
        for quota in [WINDOW, BUCKET] {
            let taken = subject.take(0, quota, 3).await;
            subject.settle(taken, Refund(2)).await;
            assert_remaining(subject, 0, quota, 4).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_never_gives_back_more_than_was_taken() {
    on_each_store(async |subject| {
        for quota in [WINDOW, BUCKET] {
            let _ = subject.take(0, quota, 2).await;
            let taken = subject.take(0, quota, 1).await;
            subject.settle(taken, Refund(u64::MAX)).await;
            assert_remaining(subject, 0, quota, 3).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_of_a_window_that_is_over_gives_nothing_to_the_next() {
    on_each_store(async |subject| {
        let late = subject.take(59 * S, WINDOW, 3).await;
        let _ = subject.take(60 * S, WINDOW, 3).await;
        subject.settle(late, Refund(3)).await;
        assert_remaining(subject, 60 * S, WINDOW, 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_refund_within_its_window_counts_until_the_last_tick() {
    on_each_store(async |subject| {
        let taken = subject.take(60 * S, WINDOW, 5).await;
        subject.clock.set(120 * S - 1);
        subject.settle(taken, Refund(5)).await;
        let after = [admits(100 * S, 5, 0, 20 * S), denies(100 * S, 1, 0, 20 * S, 20 * S)];
        run(subject, WINDOW, &after).await;
    })
    .await;
}

#[tokio::test]
async fn a_refund_fills_a_bucket_to_its_brim_and_not_beyond() {
    on_each_store(async |subject| {
        let taken = subject.take(0, BUCKET, 4).await;
        subject.clock.set(30 * S);
        subject.settle(taken, Refund(4)).await;
        assert_remaining(subject, 30 * S, BUCKET, 5).await;
        run(subject, BUCKET, &[admits(30 * S, 5, 0, 50 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_charge_takes_more_than_the_request_did() {
    on_each_store(async |subject| {
        for quota in [WINDOW, BUCKET] {
            let taken = subject.take(0, quota, 1).await;
            subject.settle(taken, Charge(3)).await;
            assert_remaining(subject, 0, quota, 1).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_charge_past_the_limit_is_carried_for_the_rest_of_the_window() {
    on_each_store(async |subject| {
        let taken = subject.take(0, WINDOW, 1).await;
        subject.settle(taken, Charge(100)).await;
        run(subject, WINDOW, &[denies(10 * S, 1, 0, 50 * S, 50 * S), admits(60 * S, 5, 0, 60 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn a_charge_puts_a_bucket_into_debt_by_at_most_its_capacity() {
    on_each_store(async |subject| {
        let taken = subject.take(0, BUCKET, 1).await;
        subject.settle(taken, Charge(u64::MAX)).await;
        let rows =
            [denies(0, 1, 0, 60 * S, 100 * S), denies(60 * S - 1, 1, 0, 1, 40 * S + 1), admits(60 * S, 1, 0, 50 * S)];
        run(subject, BUCKET, &rows).await;
    })
    .await;
}

#[tokio::test]
async fn a_settlement_changes_the_check_it_names_and_no_other() {
    on_each_store(async |subject| {
        let decided = subject.decide(&[check("a", WINDOW, 2), check("b", BUCKET, 2)], Deadline::none()).await;
        let changes = [Settlement::new(1, Refund(1)), Settlement::new(2, Refund(1))];
        subject.settle_all(decided, &changes).await;
        let left = subject.decide(&[check("a", WINDOW, 0), check("b", BUCKET, 0)], Deadline::none()).await.decision;
        let left: Vec<u64> = left.outcomes().iter().map(Outcome::remaining).collect();
        assert_eq!(left, [3, 4], "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn a_shadow_check_that_took_nothing_has_nothing_to_give_back() {
    on_each_store(async |subject| {
        let _ = subject.take(0, WINDOW, 4).await;
        let decided = subject.decide(&[check(KEY, WINDOW, 3).mode(Mode::Shadow)], Deadline::none()).await;
        subject.settle(decided, Refund(3)).await;
        assert_remaining(subject, 0, WINDOW, 1).await;
    })
    .await;
}

#[tokio::test]
async fn settling_without_changes_keeps_what_was_taken() {
    on_each_store(async |subject| {
        let taken = subject.take(0, WINDOW, 2).await;
        let before = subject.kept();
        subject.settle_all(taken, &[]).await;
        assert_eq!(subject.kept(), before, "{}", subject.name);
        assert_remaining(subject, 0, WINDOW, 3).await;
    })
    .await;
}

#[tokio::test]
async fn a_receipt_of_another_store_is_ignored() {
    let other = MemoryStore::new();
    on_each_store(async |subject| {
        let _ = subject.take(0, BUCKET, 3).await;
        let foreign = other.decide(&[check(KEY, BUCKET, 1)], Deadline::none()).wait().await.unwrap();
        subject.settle(foreign, Refund(1)).await;
        assert_remaining(subject, 0, BUCKET, 2).await;
    })
    .await;
}
