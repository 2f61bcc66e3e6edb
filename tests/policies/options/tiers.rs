//! Quotas that differ from request to request, and what becomes of what was taken.

use std::time::Duration;

use http::Request;
use tollgate::{Policy, Quota, key};

use crate::rig::{HOUR, Rig, Text, and, line, now, on_each_store, statuses, with};
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
    let service = Rig::memory().service([plans(FREE, [("pro", PRO), ("one", Quota::fixed_window(1, HOUR))])]);
    for (plan, status, limit, left) in [
        ("none", 200, "2", "1"),
        ("pro", 200, "5", "3"),
        ("unknown", 429, "2", "0"),
        ("one", 429, "1", "0"),
        ("pro", 200, "5", "2"),
    ] {
        let response = now(&service, by(plan));
        assert_eq!(response.status(), status, "{plan}");
        assert_eq!(line(&response, "ratelimit-policy"), format!(r#""user";q={limit};w=3600"#), "{plan}");
        assert_eq!(line(&response, "x-ratelimit-limit"), limit, "{plan}");
        assert_eq!(line(&response, "x-ratelimit-remaining"), left, "{plan}");
    }
}

/// The statuses of requests by one plan, and then by another.
async fn changed(rig: &Rig, before: Quota, after: Quota, counts: (usize, usize)) -> Vec<u16> {
    let service = rig.service([plans(before, [("after", after)])]);
    rig.clock.set(at(0));
    let before = (0..counts.0).map(|_| by("before"));
    statuses(&service, before.chain((0..counts.1).map(|_| by("after")))).await
}

#[tokio::test]
async fn another_limit_or_burst_keeps_the_units_used() {
    let bucket = Quota::token_bucket(2, HOUR);
    on_each_store(async |rig| {
        for (low, high) in [
            (FREE, PRO),
            (bucket, Quota::token_bucket(5, HOUR)),
            (Quota::token_bucket(2, HOUR * 2), Quota::token_bucket(2, HOUR * 2).burst(5)),
            (Quota::sliding_window(2, HOUR), Quota::sliding_window(5, HOUR)),
            (Quota::sliding_log(2, HOUR), Quota::sliding_log(5, HOUR)),
        ] {
            let expected = [200, 200, 200, 200, 200, 429];
            assert_eq!(changed(rig, low, high, (2, 4)).await, expected, "{} {low}", rig.name);
            assert_eq!(changed(rig, high, low, (0, 1)).await, [429], "{} {low}", rig.name);
        }
    })
    .await;
    assert_eq!(changed(&Rig::memory(), PRO, FREE, (1, 2)).await, [200, 200, 429]);
}

#[tokio::test]
async fn another_window_or_algorithm_starts_fresh_and_the_old_one_is_kept() {
    let others = [
        ("daily", Quota::fixed_window(2, HOUR * 24)),
        ("log", Quota::sliding_log(2, HOUR)),
        ("window", Quota::sliding_window(2, HOUR)),
        ("bucket", Quota::token_bucket(2, HOUR)),
    ];
    on_each_store(async |rig| {
        let service = rig.service([plans(FREE, others)]);
        for plan in ["none", "daily", "log", "window", "bucket"] {
            assert_eq!(statuses(&service, [plan; 3].map(by)).await, [200, 200, 429], "{}: {plan}", rig.name);
            assert_eq!(statuses(&service, [by("none")]).await, [429], "{}: {plan}", rig.name);
        }
    })
    .await;
}

#[test]
fn what_a_refusal_says_of_the_wait_is_by_the_tier() {
    let bucket = |seconds| Quota::token_bucket(1, Duration::from_secs(seconds));
    let service = Rig::memory().service([plans(bucket(10), [("slow", bucket(40))])]);
    for (plan, wait) in [("none", "10"), ("slow", "40")] {
        assert_eq!(now(&service, by(plan)).status(), 200);
        assert_eq!(line(&now(&service, by(plan)), "retry-after"), wait);
    }
    let service = Rig::memory().service([plans(PRO, [("small", FREE)]).cost(3)]);
    let refused = now(&service, by("small"));
    assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""), "the cost never fits");
    assert_eq!(now(&service, by("none")).status(), 200);
}
