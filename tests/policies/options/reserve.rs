//! Units kept for critical requests.

use http::Request;
use tollgate::{Policy, Quota};

use super::rig::{HOUR, Rig, S, Text, get, line, on_each_store, send, statuses, with};
use crate::support::time::at;

const TEN: Quota = Quota::fixed_window(10, HOUR);

fn reserving(quota: Quota, fraction: f64) -> Policy {
    Policy::new("policy", quota).reserve(fraction, |parts| parts.headers.contains_key("x-critical"))
}

fn critical() -> Request<Text> {
    with("x-critical", "1")
}

/// How many others are admitted, and then how many critical ones.
async fn admitted(rig: &Rig, policy: Policy) -> [usize; 2] {
    let service = rig.service([policy]);
    let others = statuses(&service, (0..20).map(|_| get())).await;
    let critical = statuses(&service, (0..20).map(|_| critical())).await;
    [others, critical].map(|statuses| statuses.iter().filter(|status| **status == 200).count())
}

#[tokio::test]
async fn others_are_refused_within_the_reserve_and_critical_ones_admitted_to_the_last_unit() {
    on_each_store(async |rig| {
        for quota in [TEN, Quota::token_bucket(10, HOUR), Quota::sliding_window(10, HOUR), Quota::sliding_log(10, HOUR)]
        {
            assert_eq!(admitted(rig, reserving(quota, 0.3)).await, [7, 3], "{}: {quota}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn the_reserve_is_a_fraction_of_the_capacity_rounded_up() {
    for (fraction, expected) in [(0.01, [9, 1]), (0.1, [9, 1]), (0.11, [8, 2]), (0.999, [0, 10]), (1e-9, [9, 1])] {
        let policy = reserving(TEN, fraction);
        let quota = Quota::token_bucket(10, HOUR * 24);
        assert_eq!(admitted(&Rig::memory(), policy).await, expected, "{fraction}");
        assert_eq!(admitted(&Rig::memory(), reserving(quota, fraction)).await, expected, "{fraction}");
    }
    let burst = Quota::token_bucket(100, HOUR * 24).burst(10);
    assert_eq!(admitted(&Rig::memory(), reserving(burst, 0.3)).await, [7, 3]);
}

#[tokio::test]
async fn a_critical_request_uses_the_common_part_first() {
    on_each_store(async |rig| {
        let service = rig.service([reserving(TEN, 0.3)]);
        let before = statuses(&service, (0..5).map(|_| critical())).await;
        assert_eq!(before, [200; 5]);
        assert_eq!(statuses(&service, [get(), get(), get()]).await, [200, 200, 429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn each_is_told_what_is_left_for_its_like() {
    on_each_store(async |rig| {
        let service = rig.service([reserving(TEN, 0.3)]);
        assert_eq!(line(&send(&service, get()).await, "x-ratelimit-remaining"), "6", "{}", rig.name);
        assert_eq!(line(&send(&service, critical()).await, "x-ratelimit-remaining"), "8", "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn the_wait_ends_when_the_reserve_is_full_again_and_a_unit_more_is_there() {
    // A unit returns every 6 minutes.
    let bucket = Quota::token_bucket(10, HOUR);
    on_each_store(async |rig| {
        rig.clock.set(at(0));
        let service = rig.service([reserving(bucket, 0.3)]);
        assert_eq!(statuses(&service, (0..10).map(|_| critical())).await, [200; 10]);
        let refused = send(&service, get()).await;
        assert_eq!(line(&refused, "retry-after"), "1440", "{}", rig.name);
        assert_eq!(line(&refused, "ratelimit"), r#""policy";r=0;t=1440"#, "{}", rig.name);
        assert_eq!(line(&send(&service, critical()).await, "retry-after"), "360", "{}", rig.name);
        rig.clock.set(at(1_440 * S - 1_000));
        assert_eq!(statuses(&service, [get()]).await, [429], "{}: a tick before", rig.name);
        rig.clock.set(at(1_440 * S));
        assert_eq!(statuses(&service, [get()]).await, [200], "{}: at it", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_cost_above_what_the_reserve_leaves_never_passes_and_has_no_wait() {
    on_each_store(async |rig| {
        for quota in [TEN, Quota::token_bucket(10, HOUR)] {
            let service = rig.service([reserving(quota, 0.3).cost(8)]);
            let refused = send(&service, get()).await;
            assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""), "{}", rig.name);
            assert_eq!(statuses(&service, [critical()]).await, [200], "{}", rig.name);
            let refused = send(&service, critical()).await;
            assert_ne!(line(&refused, "retry-after"), "", "{}: it passes when enough is back", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_cost_of_all_that_the_reserve_leaves_passes() {
    on_each_store(async |rig| {
        let service = rig.service([reserving(TEN, 0.3).cost(7)]);
        assert_eq!(statuses(&service, [get(), get()]).await, [200, 429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn the_reserve_of_a_tier_is_a_part_of_the_tier() {
    let rig = Rig::memory();
    let policy = reserving(TEN, 0.5).tier(|_| Some(Quota::fixed_window(4, HOUR)));
    assert_eq!(admitted(&rig, policy).await, [2, 2]);
}

#[test]
fn a_reserve_is_above_nothing_and_below_all() {
    for fraction in [0.0, 1.0, -1.0, 2.0, f64::NAN, f64::INFINITY, -0.0] {
        let error = Policy::new("policy", TEN).try_reserve(fraction, |_| true).expect_err("it is no share");
        let text = format!("reserve {fraction} is not allowed: give a fraction above 0 and below 1");
        assert_eq!((error.to_string(), error.is_invalid()), (text, true));
    }
}
