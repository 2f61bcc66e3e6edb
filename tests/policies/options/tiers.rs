//! Quotas that differ from request to request, and what becomes of what was taken.

use std::time::Duration;

use http::Request;
use tollgate::{Policy, Quota, key};

use crate::rig::{HOUR, Rig, Text, and, each, line, send, service, statuses, with};
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
    let service = service(plans(FREE, [("pro", PRO), ("one", Quota::fixed_window(1, HOUR))]));
    for (plan, status, limit, left) in [
        ("none", 200, "2", "1"),
        ("pro", 200, "5", "3"),
        ("unknown", 429, "2", "0"),
        ("one", 429, "1", "0"),
        ("pro", 200, "5", "2"),
    ] {
        let response = send(&service, by(plan));
        assert_eq!(response.status(), status, "{plan}");
        assert_eq!(line(&response, "ratelimit-policy"), format!(r#""user";q={limit};w=3600"#), "{plan}");
        assert_eq!(line(&response, "x-ratelimit-limit"), limit, "{plan}");
        assert_eq!(line(&response, "x-ratelimit-remaining"), left, "{plan}");
    }
}

#[test]
fn another_limit_or_burst_keeps_the_units_used() {
    let daily = Quota::token_bucket(2, HOUR * 2);
    for (low, high) in each(2).into_iter().zip(each(5)).chain([(daily, daily.burst(5))]) {
        let rig = Rig::new();
        let service = rig.service([plans(low, [("pro", high)])]);
        rig.clock.set(at(0));
        let plans = ["none", "none", "none", "pro", "pro", "pro", "pro", "none"].map(by);
        assert_eq!(statuses(&service, plans), [200, 200, 429, 200, 200, 200, 429, 429], "{low}");
    }
}

#[test]
fn another_window_or_algorithm_starts_fresh_and_the_old_one_is_kept() {
    let [_, bucket, window, log] = each(2);
    let others = [("daily", Quota::fixed_window(2, HOUR * 24)), ("log", log), ("window", window), ("bucket", bucket)];
    let service = service(plans(FREE, others));
    for plan in ["none", "daily", "log", "window", "bucket"] {
        assert_eq!(statuses(&service, [plan, plan, plan, "none"].map(by)), [200, 200, 429, 429], "{plan}");
    }
}

#[test]
fn what_a_refusal_says_of_the_wait_is_by_the_tier() {
    let bucket = |seconds| Quota::token_bucket(1, Duration::from_secs(seconds));
    let waiting = service(plans(bucket(10), [("slow", bucket(40))]));
    for (plan, wait) in [("none", "10"), ("slow", "40")] {
        assert_eq!(statuses(&waiting, [by(plan)]), [200]);
        assert_eq!(line(&send(&waiting, by(plan)), "retry-after"), wait);
    }
    let costly = service(plans(PRO, [("small", FREE)]).cost(3));
    let refused = send(&costly, by("small"));
    assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""), "the cost never fits");
    assert_eq!(statuses(&costly, [by("none")]), [200]);
}
