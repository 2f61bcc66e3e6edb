//! Lookups that are late: who makes them so, and what is kept.

use std::future::ready;
use std::pin::pin;

use futures::FutureExt;
use tokio::time::{advance, sleep, timeout};
use tollgate::key::{self, Extracted};
use tollgate::policy::{AccessList, TierLookup, UnknownTier};
use tollgate::{Ban, Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer, Rule};

use super::rig::{Directory, HOUR, MANY, PRO, by, memory, ms, send, status, tiered, told, with_token};

const ONE: Quota = Quota::fixed_window(1, HOUR);

async fn limit(layer: &RateLimitLayer, token: &str) -> String {
    told(layer, token, "x-ratelimit-limit").await
}

/// Finds a quota at once the first time, and then fails, so late.
fn then_fails(directory: &Directory, after: u64) -> TierLookup {
    let asked = directory.clone();
    directory.tiers_by(move |_| {
        let first = asked.asked() == 1;
        async move {
            if first {
                return Ok(Some(PRO));
            }
            sleep(ms(after)).await;
            Err("the directory is away")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_left_does_not_lose_the_expired_result_of_all_others() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(then_fails(&directory, 40)));
    assert_eq!(limit(&layer, "ada").await, "200000");
    advance(ms(60_000)).await;
    {
        let mut left = pin!(send(&layer, with_token("ada")));
        assert!((&mut left).now_or_never().is_none());
        // Its thread is kept, or nobody polls it; then the client is gone.
        advance(ms(12)).await;
    }
    sleep(ms(1)).await;
    assert_eq!(limit(&layer, "ada").await, "200000", "an expired result is used while the fresh one is late");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_makes_no_lookup_late_that_is_in_time() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(directory.tiers(ms(40))));
    let left = timeout(ms(15), send(&layer, with_token("ada"))).await;
    assert!(left.is_err(), "the client has left");
    sleep(ms(1)).await;
    assert_eq!(limit(&layer, "ada").await, "200000", "24 ms later it is found");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_limited_by_its_tier() {
    let small = Directory::default().tiers_by(|_| async {
        sleep(ms(40)).await;
        Ok(Some(ONE))
    });
    let layer = RateLimitLayer::new(memory(), tiered(small.on_unknown(UnknownTier::Skip)));
    let _ = timeout(ms(15), send(&layer, with_token("ada"))).await;
    sleep(ms(1)).await;
    let mut served = 0;
    for _ in 0..100 {
        served += usize::from(status(&layer, "ada").await == 200);
    }
    assert!(served <= 1, "{served} of 100 were served, and the tier has 1 an hour");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_limited_by_its_key() {
    let policy = Policy::new("account", ONE).key(Directory::default().accounts(ms(40)));
    let layer = RateLimitLayer::new(memory(), policy).on_failure(OnFailure::Allow);
    let _ = timeout(ms(15), send(&layer, with_token("ada"))).await;
    sleep(ms(1)).await;
    let mut served = 0;
    for _ in 0..100 {
        served += usize::from(status(&layer, "ada").await == 200);
    }
    assert!(served <= 1, "{served} of 100 were served, and the key has 1 an hour");
}

#[tokio::test(start_paused = true)]
async fn a_banned_key_stays_banned_while_its_tier_is_unknown() {
    let directory = Directory::default();
    let asked = directory.clone();
    let lookup = directory.tiers_by(move |_| ready(if asked.asked() == 1 { Ok(Some(ONE)) } else { Err("away") }));
    let lookup = lookup.ttl(ms(1_000)).on_unknown(UnknownTier::Skip);
    let ban = Ban::new(1, HOUR, HOUR).of_verified_keys();
    let layer = RateLimitLayer::new(memory(), tiered(lookup).ban(ban));
    assert_eq!([status(&layer, "ada").await, status(&layer, "ada").await], [200, 429]);
    assert_eq!(status(&layer, "ada").await, 429, "it is banned");
    sleep(ms(10_000)).await;
    assert_eq!(status(&layer, "ada").await, 429, "it is banned, whatever its quota");
}

#[tokio::test]
async fn a_rule_in_shadow_mode_refuses_nothing_for_want_of_a_tier() {
    let failing = Directory::default().tiers_by(|_| ready(Err("away"))).on_unknown(UnknownTier::Deny);
    let shadow = Rule::new("new", PRO).tier_lookup(failing).shadow();
    let limiter = Limiter::new(memory(), [Rule::new("user", MANY), shadow]);
    let decision = limiter.check(&Key::new("user", "ada")).await;
    assert!(decision.is_ok_and(|decision| decision.is_allowed()), "shadow mode refuses nothing");
}

#[tokio::test(start_paused = true)]
async fn a_denied_part_is_denied_when_the_other_part_is_looked_up_and_missing() {
    let nobody = Directory::default().accounts_by(|_| ready(Ok(Extracted::Missing)));
    let policy = by((nobody, key::header("x-tenant"))).deny(AccessList::default().key_of("header x-tenant", "evil"));
    let layer = RateLimitLayer::new(memory(), policy);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let mut request = with_token("made-up");
        request.headers_mut().insert("x-tenant", "evil".parse().expect("a value"));
        statuses.push(send(&layer, request).await.status().as_u16());
    }
    assert_eq!(statuses, [403, 403]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_lookup_refuses_makes_no_lookup_late() {
    let account = key::lookup(key::header("x-other"), |other: key::Lookup| async move {
        sleep(ms(15)).await;
        let unknown = || http::Response::builder().status(401).body("who are you?".into()).expect("a response");
        let found = if other.text() == Some("bad") {
            Extracted::Rejected(Box::new(unknown()))
        } else {
            Extracted::Key(Key::new("account", "7"))
        };
        Ok::<_, &str>(found)
    });
    let layer = RateLimitLayer::composite(memory()).policies([by(account), tiered(Directory::default().tiers(ms(40)))]);
    let with = |other: &'static str| {
        let mut request = with_token("ada");
        request.headers_mut().insert("x-other", http::HeaderValue::from_static(other));
        request
    };
    assert_eq!(send(&layer, with("bad")).await.status(), 401);
    let response = send(&layer, with("good")).await;
    let policies = response.headers()["ratelimit-policy"].to_str().expect("text").to_owned();
    assert!(policies.contains("q=200000"), "25 ms later the tier is found: {policies}");
}
