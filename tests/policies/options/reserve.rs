//! Units kept for critical requests.

use http::Request;
use tollgate::{Policy, Quota};

use crate::rig::{HOUR, Rig, S, Text, each, get, line, send, service, statuses, with};
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
fn admitted(policy: Policy) -> [usize; 2] {
    let service = service(policy);
    [get, critical].map(|request| (0..20).filter(|_| send(&service, request()).status() == 200).count())
}

#[test]
fn others_are_refused_within_the_reserve_and_critical_ones_admitted_to_the_last_unit() {
    let larger = Quota::token_bucket(100, HOUR * 24).burst(10);
    for quota in each(10).into_iter().chain([larger]) {
        // It is a fraction of the capacity, rounded up.
        for (fraction, expected) in [(0.3, [7, 3]), (0.11, [8, 2]), (0.999, [0, 10]), (1e-9, [9, 1])] {
            assert_eq!(admitted(reserving(quota, fraction)), expected, "{fraction}: {quota}");
        }
    }
    let tier = reserving(TEN, 0.5).tier(|_| Some(Quota::fixed_window(4, HOUR)));
    assert_eq!(admitted(tier), [2, 2], "the reserve of a tier is a part of the tier");
}

#[test]
fn each_is_told_what_is_left_and_how_long_to_wait_for_its_like() {
    let rig = Rig::new();
    rig.clock.set(at(0));
    // A unit returns every 6 minutes.
    let service = rig.service([reserving(BUCKET, 0.3)]);
    assert_eq!(line(&send(&service, get()), "x-ratelimit-remaining"), "6");
    assert_eq!(line(&send(&service, critical()), "x-ratelimit-remaining"), "8");
    assert_eq!(statuses(&service, [(); 8].map(|()| critical())), [200; 8]);
    let refused = send(&service, get());
    assert_eq!((line(&refused, "ratelimit"), line(&refused, "retry-after")), (r#""policy";r=0;t=1440"#, "1440"));
    assert_eq!(line(&send(&service, critical()), "retry-after"), "360");
    rig.clock.set(at(1_440 * S - 1_000));
    assert_eq!(statuses(&service, [get()]), [429], "a tick before");
    rig.clock.set(at(1_440 * S));
    assert_eq!(statuses(&service, [get()]), [200], "at it");
}

#[test]
fn a_cost_above_what_the_reserve_leaves_never_passes_and_has_no_wait() {
    let costly = service(reserving(BUCKET, 0.3).cost(8));
    let refused = send(&costly, get());
    assert_eq!((refused.status().as_u16(), line(&refused, "retry-after")), (429, ""));
    assert_eq!(statuses(&costly, [critical(), critical()]), [200, 429]);
    assert_ne!(line(&send(&costly, critical()), "retry-after"), "", "it passes when enough is back");
    assert_eq!(
        statuses(&service(reserving(BUCKET, 0.3).cost(7)), [get(), get()]),
        [200, 429],
        "it is all that is left"
    );
}

#[test]
fn a_reserve_is_above_nothing_and_below_all() {
    for fraction in [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, -0.0] {
        let error = Policy::new("policy", TEN).try_reserve(fraction, |_| true).expect_err("it is no share");
        assert!(error.is_invalid() && error.to_string().starts_with(&format!("reserve {fraction} is not")), "{error}");
    }
}
