//! Units kept for critical requests.

use http::Request;
use tollgate::{Policy, Quota};

use crate::rig::{HOUR, Rig, S, Text, get, line, on_each_store, send, statuses, with};
use crate::support::time::at;

const TEN: Quota = Quota::fixed_window(10, HOUR);
const BUCKET: Quota = Quota::token_bucket(10, HOUR);

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
        for quota in [TEN, BUCKET, Quota::sliding_window(10, HOUR), Quota::sliding_log(10, HOUR)] {
            assert_eq!(admitted(rig, reserving(quota, 0.3)).await, [7, 3], "{}: {quota}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn the_reserve_is_a_fraction_of_the_capacity_rounded_up() {
    let daily = Quota::token_bucket(10, HOUR * 24);
    let larger = Quota::token_bucket(100, HOUR * 24).burst(10);
    for (fraction, expected) in [(0.01, [9, 1]), (0.1, [9, 1]), (0.11, [8, 2]), (0.999, [0, 10]), (1e-9, [9, 1])] {
        for quota in [TEN, daily, larger] {
            assert_eq!(admitted(&Rig::memory(), reserving(quota, fraction)).await, expected, "{fraction}: {quota}");
        }
    }
    let tier = reserving(TEN, 0.5).tier(|_| Some(Quota::fixed_window(4, HOUR)));
    assert_eq!(admitted(&Rig::memory(), tier).await, [2, 2], "the reserve of a tier is a part of the tier");
}

#[tokio::test]
async fn each_is_told_what_is_left_and_how_long_to_wait_for_its_like() {
    on_each_store(async |rig| {
        rig.clock.set(at(0));
        // A unit returns every 6 minutes.
        let service = rig.service([reserving(BUCKET, 0.3)]);
        assert_eq!(line(&send(&service, get()).await, "x-ratelimit-remaining"), "6", "{}", rig.name);
        assert_eq!(line(&send(&service, critical()).await, "x-ratelimit-remaining"), "8", "{}", rig.name);
        assert_eq!(statuses(&service, (0..8).map(|_| critical())).await, [200; 8]);
        let refused = send(&service, get()).await;
        assert_eq!(line(&refused, "ratelimit"), r#""policy";r=0;t=1440"#, "{}", rig.name);
        assert_eq!(line(&refused, "retry-after"), "1440", "{}", rig.name);
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
    for quota in [TEN, BUCKET] {
        let service = Rig::memory().service([reserving(quota, 0.3).cost(8)]);
        let refused = send(&service, get()).await;
        assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""));
        assert_eq!(statuses(&service, [critical()]).await, [200]);
        assert_ne!(line(&send(&service, critical()).await, "retry-after"), "", "it passes when enough is back");
        let all = Rig::memory().service([reserving(quota, 0.3).cost(7)]);
        assert_eq!(statuses(&all, [get(), get()]).await, [200, 429], "a cost of all that the reserve leaves passes");
    }
}

#[test]
fn a_reserve_is_above_nothing_and_below_all() {
    for fraction in [0.0, 1.0, -1.0, 2.0, f64::NAN, f64::INFINITY, -0.0] {
        let error = Policy::new("policy", TEN).try_reserve(fraction, |_| true).expect_err("it is no share");
        assert!(error.is_invalid() && error.to_string().starts_with(&format!("reserve {fraction} is not")), "{error}");
    }
}
