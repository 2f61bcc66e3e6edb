//! Tiers that are not known in time: what applies instead, and what operators are told.

use std::future::ready;

use http::request::Parts;
use tokio::time::{Instant, sleep};
use tollgate::policy::{TierLookup, UnknownTier};
use tollgate::{Key, Limiter, Quota, RateLimitLayer, Rule};
use tracing::Level;

use super::rig::{Directory, HOUR, PRO, memory, ms, send, status, tiered, told, with_token};
use crate::support::log::Log;

const SMALL: Quota = Quota::fixed_window(1_000, HOUR);

fn failing() -> TierLookup {
    Directory::default().tiers_by(|_| ready(Err("the directory is away")))
}

async fn limit(layer: &RateLimitLayer, token: &str) -> String {
    told(layer, token, "x-ratelimit-limit").await
}
#[tokio::test(start_paused = true)]
async fn a_database_that_takes_70_ms_costs_no_customer_the_tier() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(directory.tiers(ms(70))));
    assert_eq!(limit(&layer, "ada").await, "200000", "the first request waits for it");
    sleep(ms(61_000)).await;
    let start = Instant::now();
    assert_eq!(limit(&layer, "ada").await, "200000", "an expired tier is used while the next one is late");
    assert!(start.elapsed() < ms(15), "{:?}", start.elapsed());
    assert_eq!(directory.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_tier_the_policy_chooses_what_applies() {
    let with = |unknown| RateLimitLayer::new(memory(), tiered(failing().on_unknown(unknown)));
    assert_eq!(limit(&with(UnknownTier::Own), "ada").await, "100000");
    assert_eq!(limit(&with(UnknownTier::Quota(SMALL)), "ada").await, "1000");
    let skipped = send(&with(UnknownTier::Skip), with_token("ada")).await;
    assert_eq!((skipped.status().as_u16(), skipped.headers().get("x-ratelimit-limit")), (200, None));
    assert_eq!(status(&with(UnknownTier::Deny), "ada").await, 503);
    let late = Directory::default().tiers(ms(1_001)).on_unknown(UnknownTier::Deny);
    assert_eq!(status(&RateLimitLayer::new(memory(), tiered(late.clone())), "ada").await, 503);
    assert_eq!(status(&RateLimitLayer::new(memory(), tiered(late).shadow()), "bob").await, 200, "in shadow mode");
}

#[tokio::test]
async fn a_limiter_chooses_alike() {
    let with = |unknown| Limiter::new(memory(), [Rule::new("user", PRO).tier_lookup(failing().on_unknown(unknown))]);
    let ada = Key::new("user", "ada");
    let quota = async |unknown| *with(unknown).check(&ada).await.expect("a decision").outcomes()[0].quota();
    assert_eq!(quota(UnknownTier::Own).await, PRO);
    assert_eq!(quota(UnknownTier::Quota(SMALL)).await, SMALL);
    assert!(with(UnknownTier::Skip).check(&ada).await.expect("a decision").outcomes().is_empty());
    assert!(with(UnknownTier::Deny).check(&ada).await.is_err());
    assert!(with(UnknownTier::Deny).peek(&ada).await.is_err());
    assert!(with(UnknownTier::Deny).check_n(&ada, 3).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_log_and_explain_name_the_policy_the_cause_and_what_applies() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let layer = RateLimitLayer::new(memory(), tiered(failing().on_unknown(UnknownTier::Quota(SMALL))));
    let late = RateLimitLayer::new(memory(), tiered(Directory::default().tiers(ms(2_000))));
    for _ in 0..50 {
        assert_eq!(limit(&layer, "ada").await, "1000");
    }
    let parts: Parts = with_token("ada").into_parts().0;
    let explained = layer.clone().live().explain(&parts).to_string();
    assert!(explained.contains("its tier could not be looked up: on_unknown decides the quota"), "{explained}");
    sleep(ms(1_100)).await;
    assert_eq!(limit(&late, "ada").await, "100000");
    sleep(ms(1_100)).await;
    let text = log.text();
    let of = |part: &str| text.lines().filter(|line| line.contains("tier_unknown") && line.contains(part)).count();
    assert_eq!(of("the directory is away"), 1, "{text}");
    assert!(text.contains(r#"policy="token""#) && text.contains("applies=Quota("), "{text}");
    assert_eq!(of("a lookup took longer than its timeout of 1s"), 1, "{text}");
    assert!(text.contains("it took longer than its timeout of 1s"), "{text}");
}
