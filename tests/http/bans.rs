//! What clients of a banned key receive: the response, headers, gRPC's terms, and the status document.
#![cfg(feature = "axum")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use http::StatusCode;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};

use crate::rig::{self, expect, is_banned, layer, request, text};
use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);

fn policy() -> Policy {
    Policy::new("login", Quota::fixed_window(1, MINUTE)).key(key::peer_ip()).ban(Ban::new(2, MINUTE, 10 * MINUTE))
}

fn one(layer: &RateLimitLayer) -> TestResponse {
    send(layer, 1, |_| request()).now_or_never().expect("memory decides at once").remove(0)
}

/// One that is admitted, one that is refused by the quota, and two by the ban.
fn four(layer: &RateLimitLayer) -> [TestResponse; 4] {
    [(); 4].map(|()| one(layer))
}

#[test]
fn a_ban_has_a_problem_type_of_its_own_and_its_end_in_every_header() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), policy());
    let sent = four(&layer);
    assert!(!sent[1].is_allowed() && !is_banned(&sent[1]), "{:?}", sent[1].body());
    for banned in &sent[2..] {
        let expected = concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","#,
            r#""title":"Abnormal Usage Detected","status":429,"detail":"Retry in 600 seconds.","#,
            r#""violated-policies":["login"]}"#,
        );
        assert_eq!((banned.status(), &banned.body()[..]), (StatusCode::TOO_MANY_REQUESTS, expected.as_bytes()));
        expect(banned.headers(), &[("retry-after", "600"), ("ratelimit", "\"login\";r=0;t=600")]);
        expect(banned.headers(), &[("ratelimit-policy", "\"login\";q=1;w=60")]);
    }
    for (passed, is_allowed) in [(599_999, false), (1, true)] {
        clock.advance(Duration::from_millis(passed));
        assert_eq!(one(&layer).is_allowed(), is_allowed);
    }
}

#[test]
fn the_status_of_a_banned_client_has_the_end_of_its_ban() {
    let layer = layer([policy()]);
    let service = layer.clone().live().status_service().expect("an address is proven");
    let status = || text(rig::send(&service, request()));
    assert!(!status().contains("banned"));
    let _ = four(&layer);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let (before, status, after) = (now(), status(), now());
    let banned =
        status.split_once(r#","banned":"#).map(|(_, until)| until.trim_end_matches('}').parse().expect("a time"));
    assert!(
        status.contains(r#""remaining":0"#) && (Some(before + 590)..=Some(after + 602)).contains(&banned),
        "{status}"
    );
}

#[test]
fn a_ban_outlives_the_policy_that_is_replaced_by_one_with_another_limit() {
    let layer = layer([policy()]);
    let _ = four(&layer);
    let other = Policy::new("login", Quota::token_bucket(100, MINUTE)).key(key::peer_ip());
    let live = layer.clone().live();
    live.replace_policies([other.clone().ban(Ban::new(50, MINUTE, 10 * MINUTE))]).expect("it is supported");
    assert!(!one(&layer).is_allowed());
    live.replace_policies([other]).expect("it is supported");
    assert!(one(&layer).is_allowed(), "a policy without a ban does not look at it");
}
