//! What clients of a banned key receive: the response, headers, gRPC's terms, and the status document.
#![cfg(feature = "axum")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Policy, Quota, RateLimitLayer, key};
use tollgate_test::{TestResponse, send};

use crate::rig::{self, expect, is_banned, layer, request, text};
use crate::support::time::memory;

const MINUTE: Duration = Duration::from_secs(60);
const QUOTA: Quota = Quota::fixed_window(1, MINUTE);

fn policy() -> Policy {
    Policy::new("login", QUOTA).key(key::peer_ip()).ban(Ban::new(2, MINUTE, 10 * MINUTE))
}

/// One that is admitted, one that is refused by the quota, and two by the ban.
async fn four(layer: &RateLimitLayer) -> Vec<TestResponse> {
    send(layer, 4, |_| request()).await
}

async fn is_admitted(layer: &RateLimitLayer) -> bool {
    send(layer, 1, |_| request()).await[0].is_admitted()
}

#[tokio::test]
async fn a_ban_has_a_problem_type_of_its_own_and_its_end_in_every_header() {
    let clock = ManualClock::new();
    let layer = RateLimitLayer::new(memory(&clock), policy());
    let sent = four(&layer).await;
    assert!(!sent[1].is_admitted() && !is_banned(&sent[1]), "{:?}", sent[1].body());
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
    clock.advance(Duration::from_millis(599_999));
    assert!(!is_admitted(&layer).await);
    clock.advance(Duration::from_millis(1));
    assert!(is_admitted(&layer).await);
}

#[tokio::test]
async fn the_status_of_a_banned_client_has_the_end_of_its_ban() {
    let layer = layer([policy()]);
    let service = layer.clone().live().status_service().expect("an address is proven");
    let status = || text(rig::send(&service, request()));
    assert!(!status().contains("banned"));
    let _ = four(&layer).await;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let (before, status, after) = (now(), status(), now());
    let (_, banned) = status.split_once(r#","banned":"#).unwrap_or_else(|| panic!("{status}"));
    let until: u64 = banned.trim_end_matches('}').parse().expect("a time");
    assert!((before + 590..=after + 602).contains(&until), "{status}");
    assert!(status.contains(r#""remaining":0"#), "{status}");
}

#[tokio::test]
async fn a_ban_outlives_the_policy_that_is_replaced_by_one_with_another_limit() {
    let layer = layer([policy()]);
    let _ = four(&layer).await;
    let other = Policy::new("login", Quota::token_bucket(100, MINUTE)).key(key::peer_ip());
    let live = layer.clone().live();
    live.replace_policies([other.clone().ban(Ban::new(50, MINUTE, 10 * MINUTE))]).expect("it is supported");
    assert!(!is_admitted(&layer).await);
    live.replace_policies([other]).expect("it is supported");
    assert!(is_admitted(&layer).await, "a policy without a ban does not look at it");
}
