//! Counters outside decisions, and quotas that change.

use std::time::Duration;

use tollgate::Quota;
use tollgate::store::Change::{Charge, Refund};
use tollgate::store::Deadline;

use crate::algorithms::rows::{S, admits, denies, run};
use crate::algorithms::subject::{Subject, on_each_store};

const WINDOW: Quota = Quota::fixed_window(5, Duration::from_secs(60));
const BUCKET: Quota = Quota::token_bucket(5, Duration::from_secs(50));

async fn assert_remaining(subject: &Subject, quota: Quota, expected: u64) {
    assert_eq!(subject.remaining(0, quota).await, expected, "{}: {quota}", subject.name);
}

#[tokio::test]
async fn a_counter_can_be_charged_and_refunded_by_hand() {
    on_each_store(async |subject| {
        for quota in [WINDOW, BUCKET] {
            subject.adjust(quota, Charge(3)).await;
            assert_remaining(subject, quota, 2).await;
            subject.adjust(quota, Refund(1)).await;
            assert_remaining(subject, quota, 3).await;
            subject.adjust(quota, Refund(u64::MAX)).await;
            assert_remaining(subject, quota, 5).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_refund_to_an_untouched_counter_writes_nothing() {
    on_each_store(async |subject| {
        for quota in [WINDOW, BUCKET] {
            subject.adjust(quota, Refund(3)).await;
            subject.adjust(quota, Charge(0)).await;
            assert_remaining(subject, quota, 5).await;
        }
        assert_eq!(subject.kept(), [], "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn a_charge_by_hand_goes_past_the_limit_by_at_most_another_one() {
    on_each_store(async |subject| {
        subject.adjust(BUCKET, Charge(100)).await;
        subject.adjust(BUCKET, Charge(100)).await;
        run(subject, BUCKET, &[denies(0, 1, 0, 60 * S, 100 * S), admits(60 * S, 1, 0, 50 * S)]).await;
        subject.clock.set(0);
        subject.adjust(WINDOW, Charge(100)).await;
        subject.adjust(WINDOW, Refund(6)).await;
        assert_remaining(subject, WINDOW, 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_counter_that_is_reset_starts_anew() {
    on_each_store(async |subject| {
        for quota in [WINDOW, BUCKET] {
            let _ = subject.take(0, quota, 5).await;
            subject.reset(quota).await;
            assert_remaining(subject, quota, 5).await;
            subject.reset(quota).await;
        }
        assert_eq!(subject.kept(), [], "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn a_reset_forgets_no_other_counter() {
    on_each_store(async |subject| {
        let _ = subject.take(0, WINDOW, 2).await;
        let _ = subject.take(0, BUCKET, 2).await;
        subject.reset(BUCKET).await;
        assert_remaining(subject, WINDOW, 3).await;
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_changes_keeps_the_units_used() {
    on_each_store(async |subject| {
        for (quota, higher, lower) in [
            (WINDOW, Quota::fixed_window(10, WINDOW.window()), Quota::fixed_window(2, WINDOW.window())),
            (BUCKET, Quota::token_bucket(10, BUCKET.window()), Quota::token_bucket(2, BUCKET.window())),
            (BUCKET.burst(7), BUCKET.burst(12), BUCKET.burst(1)),
        ] {
            subject.reset(quota).await;
            let _ = subject.take(0, quota, 3).await;
            let used = higher.capacity() - 3;
            assert_remaining(subject, higher, used).await;
            assert_remaining(subject, lower, 0).await;
            assert_remaining(subject, quota, quota.capacity() - 3).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_lowered_limit_is_told_a_true_time_to_retry() {
    on_each_store(async |subject| {
        let _ = subject.take(0, BUCKET, 5).await;
        let lower = Quota::token_bucket(2, BUCKET.window());
        // Five units used, of which four must return at one in 25 s.
        let rows = [denies(0, 1, 0, 100 * S, 125 * S), denies(100 * S - 1, 1, 0, 1, 25 * S + 1)];
        run(subject, lower, &rows).await;
        run(subject, lower, &[admits(100 * S, 1, 0, 50 * S)]).await;
    })
    .await;
}

#[tokio::test]
async fn another_window_or_algorithm_starts_anew() {
    on_each_store(async |subject| {
        let _ = subject.take(0, WINDOW, 5).await;
        for other in [
            Quota::fixed_window(5, Duration::from_secs(61)),
            // As many milliseconds as the others are microseconds.
            Quota::fixed_window(5, Duration::from_secs(60_000)),
            Quota::token_bucket(5, Duration::from_secs(60)),
        ] {
            assert_remaining(subject, other, 5).await;
            let _ = subject.take(0, other, 1).await;
            assert_remaining(subject, other, 4).await;
        }
        assert_remaining(subject, WINDOW, 0).await;
    })
    .await;
}

#[tokio::test]
async fn policies_and_keys_are_counted_apart() {
    use crate::support::checks::check;
    on_each_store(async |subject| {
        let mine = check("ada", WINDOW, 5);
        let mut others = [check("bob", WINDOW, 5), check("ada", WINDOW, 5)];
        others[1].counter.policy = "other".try_into().expect("a valid name");
        assert!(subject.decide(&[mine], Deadline::none()).await.decision.is_allowed(), "{}", subject.name);
        for other in others {
            assert!(subject.decide(&[other], Deadline::none()).await.decision.is_allowed(), "{}", subject.name);
        }
    })
    .await;
}
