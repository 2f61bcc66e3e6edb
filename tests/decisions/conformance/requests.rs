//! Requests of several checks: all or nothing.

use std::time::Duration;

use tollgate::store::{Check, Deadline};
use tollgate::{Decision, Outcome, Quota};

use crate::algorithms::rows::S;
use crate::algorithms::subject::{Subject, on_each_store};
use crate::support::checks::check;

const IP: Quota = Quota::fixed_window(10, Duration::from_secs(60));
const USER: Quota = Quota::token_bucket(5, Duration::from_secs(50));
const ROUTE: Quota = Quota::fixed_window(1, Duration::from_secs(600));

/// A request by one client as one user on one route.
fn request(ip: u64, user: u64, route: u64) -> [Check; 3] {
    [check("ip", IP, ip), check("user", USER, user), check("route", ROUTE, route)]
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.outcomes().iter().map(Outcome::remaining).collect()
}

fn allowed(decision: &Decision) -> Vec<bool> {
    decision.outcomes().iter().map(Outcome::is_allowed).collect()
}

async fn decide(subject: &Subject, now: u64, checks: &[Check]) -> Decision {
    subject.clock.set(now);
    subject.decide(checks, Deadline::none()).await.decision
}

/// Checks that a request is refused until exactly `wait` from `now`.
async fn assert_waits(subject: &Subject, now: u64, wait: u64, checks: &[Check]) {
    let refused = decide(subject, now, checks).await;
    assert_eq!(refused.retry_after(), Some(Duration::from_micros(wait)), "{}: {refused:?}", subject.name);
    let early = decide(subject, now + wait - 1, checks).await;
    assert!(!early.is_allowed(), "{}: {early:?}", subject.name);
    let in_time = decide(subject, now + wait, checks).await;
    assert!(in_time.is_allowed(), "{}: {in_time:?}", subject.name);
}

/// Checks that a request is refused, and that no wait helps it.
async fn assert_never(subject: &Subject, now: u64, checks: &[Check]) {
    let refused = decide(subject, now, checks).await;
    assert!(!refused.is_allowed(), "{}: {refused:?}", subject.name);
    assert_eq!(refused.retry_after(), None, "{}: {refused:?}", subject.name);
}

#[tokio::test]
async fn a_request_refused_by_one_limit_costs_nothing_on_the_others() {
    on_each_store(async |subject| {
        let first = decide(subject, 0, &request(1, 1, 1)).await;
        assert_eq!(remaining(&first), [9, 4, 0], "{}", subject.name);
        let before = subject.kept();
        for _ in 0..20 {
            let refused = decide(subject, 0, &request(1, 1, 1)).await;
            assert_eq!(allowed(&refused), [true, true, false], "{}", subject.name);
            assert_eq!(remaining(&refused), [9, 4, 0], "{}: what is left, as nothing is taken", subject.name);
        }
        assert_eq!(subject.kept(), before, "{}", subject.name);
        assert_eq!(remaining(&decide(subject, 0, &request(0, 0, 0)).await), [9, 4, 0], "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn every_place_in_a_request_can_refuse_it() {
    on_each_store(async |subject| {
        for refusing in 0..3 {
            let mut checks = request(1, 1, 1);
            checks[refusing].cost = 100;
            let refused = decide(subject, 0, &checks).await;
            assert!(!refused.is_allowed(), "{}: place {refusing}", subject.name);
            assert_eq!(remaining(&refused), [10, 5, 1], "{}: place {refusing}", subject.name);
        }
        assert_eq!(subject.kept(), [], "nothing was written");
    })
    .await;
}

#[tokio::test]
async fn the_largest_time_to_retry_binds_a_refusal() {
    on_each_store(async |subject| {
        let _ = decide(subject, 0, &request(8, 5, 0)).await;
        let refused = decide(subject, 0, &request(3, 2, 1)).await;
        assert_eq!(allowed(&refused), [false, false, true], "{}", subject.name);
        assert_eq!(refused.violated().count(), 2, "{}", subject.name);
        assert_eq!(refused.binding().map(|outcome| *outcome.quota()), Some(IP), "{}", subject.name);
        assert_waits(subject, 0, 60 * S, &request(3, 2, 1)).await;
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_no_wait_helps_binds_a_refusal_before_one_to_wait_for() {
    on_each_store(async |subject| {
        let _ = decide(subject, 0, &request(0, 5, 1)).await;
        assert_never(subject, 0, &request(11, 1, 1)).await;
        let refused = decide(subject, 0, &request(11, 1, 1)).await;
        assert_eq!(refused.binding().map(|outcome| *outcome.quota()), Some(IP), "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn the_least_remaining_binds_what_is_admitted() {
    on_each_store(async |subject| {
        let first = decide(subject, 0, &request(1, 1, 0)).await;
        assert_eq!(first.binding().map(|outcome| *outcome.quota()), Some(ROUTE), "{}", subject.name);
        let second = decide(subject, 0, &request(8, 1, 0)[..2]).await;
        assert_eq!(remaining(&second), [1, 3], "{}", subject.name);
        assert_eq!(second.binding().map(|outcome| *outcome.quota()), Some(IP), "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn a_refused_request_leaves_an_empty_receipt() {
    on_each_store(async |subject| {
        let refused = subject.decide(&request(1, 6, 1), Deadline::none()).await;
        assert!(refused.receipt.taken().is_empty(), "{}: {refused:?}", subject.name);
        let admitted = subject.decide(&request(2, 1, 0), Deadline::none()).await;
        let units: Vec<u64> = admitted.receipt.taken().iter().map(|taken| taken.units).collect();
        assert_eq!(units, [2, 1, 0], "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn no_checks_are_admitted() {
    on_each_store(async |subject| {
        let decided = subject.decide(&[], Deadline::none()).await;
        assert!(decided.decision.is_allowed() && decided.decision.binding().is_none(), "{}", subject.name);
    })
    .await;
}

#[tokio::test]
async fn the_same_counter_twice_in_a_request_is_summed() {
    let pair = |quota, first, second| [check("twice", quota, first), check("twice", quota, second)];
    on_each_store(async |subject| {
        for quota in [Quota::fixed_window(5, Duration::from_secs(60)), Quota::token_bucket(5, Duration::from_secs(50))]
        {
            let admitted = decide(subject, 0, &pair(quota, 2, 2)).await;
            assert_eq!(remaining(&admitted)[1], 1, "{}: {quota}", subject.name);
            let before = subject.kept();
            let refused = decide(subject, 0, &pair(quota, 1, 1)).await;
            assert!(!refused.is_allowed(), "{}: {quota}", subject.name);
            assert_eq!(subject.kept(), before, "{}: {quota}", subject.name);
            let left = decide(subject, 0, &pair(quota, 0, 1)).await;
            assert!(left.is_allowed(), "{}: {quota}: the refused request took nothing", subject.name);
            assert_eq!(remaining(&left)[1], 0, "{}: {quota}", subject.name);
        }
    })
    .await;
}

#[tokio::test]
async fn the_same_counter_twice_waits_for_the_sum() {
    let bucket = Quota::token_bucket(4, Duration::from_secs(40));
    let pair = [check("twice", bucket, 2), check("twice", bucket, 2)];
    on_each_store(async |subject| {
        let _ = decide(subject, 0, &[check("twice", bucket, 3)]).await;
        assert_waits(subject, 0, 30 * S, &pair).await;
    })
    .await;
}

#[tokio::test]
async fn the_same_counter_twice_for_more_than_it_can_hold_is_told_no_time_to_retry() {
    on_each_store(async |subject| {
        for quota in [Quota::fixed_window(3, Duration::from_secs(60)), Quota::token_bucket(3, Duration::from_secs(60))]
        {
            assert_never(subject, 0, &[check("twice", quota, 2), check("twice", quota, 2)]).await;
        }
    })
    .await;
}
