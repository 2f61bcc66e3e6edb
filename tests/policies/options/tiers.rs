//! Quotas that differ from request to request, and what becomes of what was taken.

use std::time::Duration;

use http::Request;
use tollgate::{Policy, Quota, key};

use super::rig::{HOUR, Rig, S, Text, and, expect, line, now, on_each_store, send, statuses, with};
use crate::support::time::at;

const FREE: Quota = Quota::fixed_window(2, HOUR);
const PRO: Quota = Quota::fixed_window(5, HOUR);

/// A request of one user by a plan.
fn by(plan: &str) -> Request<Text> {
    and(with("x-user", "ada"), "x-plan", plan)
}

/// A policy whose plans are these quotas.
fn plans<const N: usize>(own: Quota, plans: [(&'static str, Quota); N]) -> Policy {
    Policy::new("user", own).key(key::header("x-user")).tier(move |parts| {
        let plan = parts.headers.get("x-plan")?;
        plans.iter().find(|(name, _)| *plan == *name).map(|(_, quota)| *quota)
    })
}

#[test]
fn a_closure_chooses_the_quota_and_otherwise_it_is_the_policys_own() {
    let service = Rig::memory().service([plans(FREE, [("pro", PRO)])]);
    for (plan, policy, left) in [
        ("none", r#""user";q=2;w=3600"#, r#""user";r=1;t=3600"#),
        ("pro", r#""user";q=5;w=3600"#, r#""user";r=3;t=3600"#),
        ("unknown", r#""user";q=2;w=3600"#, ""),
    ] {
        let response = now(&service, by(plan));
        assert_eq!(line(&response, "ratelimit-policy"), policy, "{plan}");
        if !left.is_empty() {
            assert_eq!(line(&response, "ratelimit"), left, "{plan}");
        }
    }
    expect(&service, by("unknown"), 429);
    expect(&service, by("pro"), 200);
}

#[test]
fn the_tiers_quota_is_in_the_legacy_headers_and_in_refusals() {
    let service = Rig::memory().service([plans(FREE, [("one", Quota::fixed_window(1, HOUR))])]);
    assert_eq!(line(&now(&service, by("one")), "x-ratelimit-limit"), "1");
    let refused = now(&service, by("one"));
    assert_eq!(refused.status(), 429);
    assert_eq!(line(&refused, "ratelimit-policy"), r#""user";q=1;w=3600"#);
    assert_eq!(line(&refused, "x-ratelimit-limit"), "1");
    assert_eq!(line(&now(&service, by("free")), "x-ratelimit-limit"), "2");
}

/// The statuses of requests by one plan, then by another, a moment later.
async fn changed(rig: &Rig, before: Quota, after: Quota, counts: (usize, usize)) -> Vec<u16> {
    let service = rig.service([plans(before, [("after", after)])]);
    rig.clock.set(at(0));
    let mut all = statuses(&service, (0..counts.0).map(|_| by("before"))).await;
    all.extend(statuses(&service, (0..counts.1).map(|_| by("after"))).await);
    all
}

#[tokio::test]
async fn a_higher_limit_keeps_the_units_used() {
    for (low, high) in [
        (FREE, PRO),
        (Quota::token_bucket(2, HOUR), Quota::token_bucket(5, HOUR)),
        (Quota::sliding_window(2, HOUR), Quota::sliding_window(5, HOUR)),
        (Quota::sliding_log(2, HOUR), Quota::sliding_log(5, HOUR)),
    ] {
        on_each_store(async |rig| {
            let expected = [200, 200, 200, 200, 200, 429];
            assert_eq!(changed(rig, low, high, (2, 4)).await, expected, "{} {low}", rig.name);
        })
        .await;
    }
}

#[tokio::test]
async fn a_lower_limit_keeps_the_units_used() {
    on_each_store(async |rig| {
        assert_eq!(changed(rig, PRO, FREE, (1, 2)).await, [200, 200, 429], "{}", rig.name);
        let service = rig.service([plans(PRO, [("free", FREE)])]);
        assert_eq!(statuses(&service, ["none", "none", "none", "free", "none"].map(by)).await[2..], [200, 429, 429]);
    })
    .await;
}

#[tokio::test]
async fn another_burst_keeps_the_units_used() {
    let bucket = Quota::token_bucket(2, HOUR);
    on_each_store(async |rig| {
        let expected = [200, 200, 200, 200, 200, 429];
        assert_eq!(changed(rig, bucket, bucket.burst(5), (2, 4)).await, expected, "{}", rig.name);
        let service = rig.service([plans(bucket.burst(5), [("less", bucket)])]);
        assert_eq!(statuses(&service, [by("less")]).await, [429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn another_window_starts_fresh_and_the_old_one_is_kept() {
    let daily = Quota::fixed_window(2, HOUR * 24);
    on_each_store(async |rig| {
        let service = rig.service([plans(FREE, [("daily", daily)])]);
        let sent = ["none", "none", "none", "daily", "daily", "daily", "none"].map(by);
        assert_eq!(statuses(&service, sent).await, [200, 200, 429, 200, 200, 429, 429], "{}", rig.name);
        rig.clock.set(at(3_600 * S));
        assert_eq!(statuses(&service, ["none", "daily"].map(by)).await, [200, 429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn another_algorithm_starts_fresh() {
    let others = [Quota::sliding_log(2, HOUR), Quota::sliding_window(2, HOUR), Quota::token_bucket(2, HOUR)];
    on_each_store(async |rig| {
        let [log, window, bucket] = others;
        let service = rig.service([plans(FREE, [("log", log), ("window", window), ("bucket", bucket)])]);
        for plan in ["none", "log", "window", "bucket"] {
            let sent = [plan; 3].map(by);
            assert_eq!(statuses(&service, sent).await, [200, 200, 429], "{}: {plan}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_tier_that_cannot_hold_the_cost_has_no_wait() {
    on_each_store(async |rig| {
        let policy = plans(PRO, [("small", FREE)]).cost(3);
        let service = rig.service([policy]);
        let refused = send(&service, by("small")).await;
        assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""), "{}", rig.name);
        assert_eq!(statuses(&service, [by("none")]).await, [200], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn the_wait_of_a_tier_is_by_its_own_rate() {
    let fast = Quota::token_bucket(1, Duration::from_secs(10));
    let slow = Quota::token_bucket(1, Duration::from_secs(40));
    on_each_store(async |rig| {
        let service = rig.service([plans(fast, [("slow", slow)])]);
        for (plan, wait) in [("none", "10"), ("slow", "40")] {
            assert_eq!(statuses(&service, [by(plan)]).await, [200]);
            assert_eq!(line(&send(&service, by(plan)).await, "retry-after"), wait, "{}", rig.name);
        }
    })
    .await;
}
