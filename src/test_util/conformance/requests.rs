//! Requests of several checks: all or nothing.

use super::case::Case;
use super::rows::{S, us};
use super::subject::{Checked, Stop, Subject, check};
use crate::core::{Decision, Outcome, Quota};
use crate::store::Check;

/// The cases of this file.
pub(super) const CASES: &[Case] = cases![
    a_request_refused_by_one_limit_costs_nothing_on_the_others,
    every_place_in_a_request_can_refuse_it,
    the_largest_time_to_retry_binds_a_refusal,
    a_limit_that_no_wait_helps_binds_a_refusal_before_one_to_wait_for,
    the_least_remaining_binds_what_is_admitted,
    a_refused_request_leaves_an_empty_receipt,
    no_checks_are_admitted,
    the_same_counter_twice_in_a_request_is_summed,
    the_same_counter_twice_waits_for_the_sum,
    the_same_counter_twice_for_more_than_it_can_hold_has_no_time_to_retry,
];

const IP: Quota = Quota::fixed_window(10, us(60 * S));
const USER: Quota = Quota::token_bucket(5, us(50 * S));
const ROUTE: Quota = Quota::fixed_window(1, us(600 * S));

/// A request by one client as one user on one route.
fn request(ip: u64, user: u64, route: u64) -> [Check; 3] {
    [check("ip", IP, ip), check("user", USER, user), check("route", ROUTE, route)]
}

/// A request with the same counter twice.
fn pair(quota: Quota, first: u64, second: u64) -> [Check; 2] {
    [check("twice", quota, first), check("twice", quota, second)]
}

async fn decide(on: &Subject, now: u64, checks: &[Check]) -> Result<Decision, Stop> {
    on.at(now)?;
    Ok(on.decide(checks).await?.decision)
}

fn remaining(on: &Subject, decision: &Decision, expected: &[u64], what: &str) {
    let found: Vec<u64> = decision.outcomes().iter().map(Outcome::remaining).collect();
    on.equal(&*found, expected, || format!("remaining, {what}"));
}

fn binds(on: &Subject, decision: &Decision, expected: Quota, what: &str) {
    on.equal(decision.binding().map(Outcome::quota), Some(&expected), || format!("what binds {what}"));
}

/// Compares a refusal, which lasts until exactly `wait` from `now`.
async fn waits(on: &Subject, now: u64, wait: u64, checks: &[Check]) -> Checked {
    let refused = decide(on, now, checks).await?;
    on.equal(refused.retry_after(), Some(us(wait)), || "the time to retry");
    let early = decide(on, now + wait - 1, checks).await?;
    on.holds(!early.is_allowed(), || format!("it is refused until then: {early:?}"));
    let in_time = decide(on, now + wait, checks).await?;
    on.holds(in_time.is_allowed(), || format!("it is admitted then: {in_time:?}"));
    Ok(())
}

/// Compares a refusal that no wait helps.
async fn never(on: &Subject, checks: &[Check]) -> Result<Decision, Stop> {
    let refused = decide(on, 0, checks).await?;
    on.holds(!refused.is_allowed(), || format!("it is refused: {refused:?}"));
    on.equal(refused.retry_after(), None, || "the time to retry");
    Ok(refused)
}

async fn a_request_refused_by_one_limit_costs_nothing_on_the_others(on: &Subject) -> Checked {
    let first = decide(on, 0, &request(1, 1, 1)).await?;
    remaining(on, &first, &[9, 4, 0], "after the first");
    for _ in 0..20 {
        let refused = decide(on, 0, &request(1, 1, 1)).await?;
        let allowed: Vec<bool> = refused.outcomes().iter().map(Outcome::is_allowed).collect();
        on.equal(&*allowed, &[true, true, false][..], || "which checks fit");
        remaining(on, &refused, &[9, 4, 0], "of a refused request");
    }
    remaining(on, &decide(on, 0, &request(0, 0, 0)).await?, &[9, 4, 0], "after refusals");
    Ok(())
}

async fn every_place_in_a_request_can_refuse_it(on: &Subject) -> Checked {
    for refusing in 0..3 {
        let mut checks = request(1, 1, 1);
        checks[refusing].cost = 100;
        let refused = decide(on, 0, &checks).await?;
        on.holds(!refused.is_allowed(), || format!("check {refusing} refuses"));
        remaining(on, &refused, &[10, 5, 1], &format!("refused by check {refusing}"));
    }
    Ok(())
}

async fn the_largest_time_to_retry_binds_a_refusal(on: &Subject) -> Checked {
    let _ = decide(on, 0, &request(8, 5, 0)).await?;
    let refused = decide(on, 0, &request(3, 2, 1)).await?;
    on.equal(refused.violated().count(), 2, || "violated");
    binds(on, &refused, IP, "the refusal");
    waits(on, 0, 60 * S, &request(3, 2, 1)).await
}

async fn a_limit_that_no_wait_helps_binds_a_refusal_before_one_to_wait_for(on: &Subject) -> Checked {
    let _ = decide(on, 0, &request(0, 5, 1)).await?;
    let refused = never(on, &request(11, 1, 1)).await?;
    binds(on, &refused, IP, "the refusal");
    Ok(())
}

async fn the_least_remaining_binds_what_is_admitted(on: &Subject) -> Checked {
    let first = decide(on, 0, &request(1, 1, 0)).await?;
    binds(on, &first, ROUTE, "the first");
    let second = decide(on, 0, &request(8, 1, 0)[..2]).await?;
    remaining(on, &second, &[1, 3], "after the second");
    binds(on, &second, IP, "the second");
    Ok(())
}

async fn a_refused_request_leaves_an_empty_receipt(on: &Subject) -> Checked {
    on.at(0)?;
    let refused = on.decide(&request(1, 6, 1)).await?;
    on.holds(refused.receipt.taken().is_empty(), || format!("nothing is taken: {refused:?}"));
    let admitted = on.decide(&request(2, 1, 0)).await?;
    let units: Vec<u64> = admitted.receipt.taken().iter().map(|taken| taken.units).collect();
    on.equal(&*units, &[2, 1, 0][..], || "what is taken");
    Ok(())
}

async fn no_checks_are_admitted(on: &Subject) -> Checked {
    let decision = decide(on, 0, &[]).await?;
    on.holds(decision.is_allowed() && decision.binding().is_none(), || format!("{decision:?}"));
    Ok(())
}

async fn the_same_counter_twice_in_a_request_is_summed(on: &Subject) -> Checked {
    for quota in [Quota::fixed_window(5, us(60 * S)), Quota::token_bucket(5, us(50 * S))] {
        let admitted = decide(on, 0, &pair(quota, 2, 2)).await?;
        on.equal(admitted.outcomes().last().map(Outcome::remaining), Some(1), || format!("remaining of {quota}"));
        let refused = decide(on, 0, &pair(quota, 1, 1)).await?;
        on.holds(!refused.is_allowed(), || format!("two of {quota} are refused"));
        let left = decide(on, 0, &pair(quota, 0, 1)).await?;
        on.holds(left.is_allowed(), || format!("the refused request of {quota} took nothing"));
        on.equal(left.outcomes().last().map(Outcome::remaining), Some(0), || format!("remaining of {quota}"));
    }
    Ok(())
}

async fn the_same_counter_twice_waits_for_the_sum(on: &Subject) -> Checked {
    let bucket = Quota::token_bucket(4, us(40 * S));
    let _ = decide(on, 0, &[check("twice", bucket, 3)]).await?;
    waits(on, 0, 30 * S, &pair(bucket, 2, 2)).await
}

async fn the_same_counter_twice_for_more_than_it_can_hold_has_no_time_to_retry(on: &Subject) -> Checked {
    for quota in [Quota::fixed_window(3, us(60 * S)), Quota::token_bucket(3, us(60 * S))] {
        let _ = never(on, &pair(quota, 2, 2)).await?;
    }
    Ok(())
}
