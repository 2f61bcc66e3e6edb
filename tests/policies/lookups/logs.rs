//! What operators are told of lookups.

use std::future::ready;

use futures::future::join_all;
use tokio::time::sleep;
use tollgate::policy::UnknownTier;
use tollgate::{Policy, Quota, RateLimitLayer};
use tracing::Level;

use super::rig::{Directory, MANY, by, layer, limit, memory, ms, status, tiered, with_token};
use crate::rig::HOUR;
use crate::support::log::Log;

#[tokio::test(start_paused = true)]
async fn lookups_that_fail_are_told_of_once_a_second_and_never_with_what_they_looked_for() {
    const AWAY: &str = "the directory is away";
    let tiers = || Directory::default().tiers_by(|_| ready(Err(AWAY)));
    let accounts = || Directory::default().accounts_by(|_| ready(Err(AWAY)));
    for (code, policies) in [
        ("lookups_full", vec![tiered(Directory::default().tiers(ms(5)).in_flight(1))]),
        ("lookup_failed", vec![tiered(tiers())]),
        ("key_unknown", vec![by(accounts()), Policy::new("all", MANY)]),
    ] {
        let log = Log::default();
        let noting = log.note(Level::TRACE);
        let layer = RateLimitLayer::composite(memory()).policies(policies);
        join_all((0..50).map(|n| {
            let layer = &layer;
            async move { status(layer, &format!("sk_live_{n}")).await }
        }))
        .await;
        drop(noting);
        let lines = log.lines(code).into_iter().filter(|line| line.contains("WARN")).count();
        assert!((1..=3).contains(&lines), "{lines} lines with {code}, of 50 requests: {}", log.text());
        assert_eq!(log.count("sk_live"), 0, "{}", log.text());
        assert_eq!(log.count(AWAY) > 0, code != "lookups_full", "{}", log.text());
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_and_explain_name_the_policy_the_cause_and_what_applies() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let failing = Directory::default().tiers_by(|_| ready(Err("the directory is away")));
    let failing = layer(tiered(failing.on_unknown(UnknownTier::Quota(Quota::fixed_window(1_000, HOUR)))));
    let late = layer(tiered(Directory::default().tiers(ms(2_000))));
    for _ in 0..50 {
        assert_eq!(limit(&failing, "ada").await, 1_000);
    }
    let explained = failing.live().explain(&with_token("ada").into_parts().0).to_string();
    assert!(explained.contains("its tier could not be looked up: on_unknown decides the quota"), "{explained}");
    sleep(ms(1_100)).await;
    assert_eq!(limit(&late, "ada").await, 100_000);
    sleep(ms(1_100)).await;
    let text = log.text();
    let of = |part: &str| text.lines().filter(|line| line.contains("tier_unknown") && line.contains(part)).count();
    assert_eq!(of("the directory is away"), 1, "{text}");
    assert!(text.contains(r#"policy="token""#) && text.contains("applies=Quota("), "{text}");
    assert_eq!(of("a lookup took longer than its timeout of 1s"), 1, "{text}");
}
