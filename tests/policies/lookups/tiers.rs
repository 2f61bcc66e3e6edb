//! Quotas that are looked up by the key, and what applies where that is not known in time.

use std::future::ready;

use tollgate::key::Lookup;
use tollgate::policy::{TierLookup, UnknownTier};
use tollgate::{Key, Limiter, Quota, Rule};
use tracing::Level;

use super::rig::{Directory, PRO, layer, limit, memory, ms, send, status, tiered, with_token};
use crate::rig::{HOUR, line};
use crate::support::log::Log;

const SMALL: Quota = Quota::fixed_window(1_000, HOUR);

fn failing() -> TierLookup {
    Directory::default().tiers_by(|_| ready(Err("the directory is away")))
}

#[tokio::test]
async fn the_quota_of_a_key_is_looked_up_and_shown() {
    let by_name = |user: Lookup| ready(Ok((user.text() == Some("pro")).then_some(PRO)));
    let layer = layer(tiered(Directory::default().tiers_by(by_name)));
    let response = send(&layer, with_token("pro")).await;
    assert_eq!(line(&response, "ratelimit-policy"), r#""token";q=200000;w=3600"#);
    assert_eq!(line(&response, "x-ratelimit-remaining"), "199999");
    assert_eq!(limit(&layer, "free").await, 100_000);
}

#[tokio::test(start_paused = true)]
async fn without_a_tier_the_policy_chooses_what_applies() {
    let with = |unknown| layer(tiered(failing().on_unknown(unknown)));
    assert_eq!(limit(&with(UnknownTier::Own), "ada").await, 100_000);
    assert_eq!(limit(&with(UnknownTier::Quota(SMALL)), "ada").await, 1_000);
    let skipped = send(&with(UnknownTier::Skip), with_token("ada")).await;
    assert_eq!((skipped.status().as_u16(), skipped.headers().get("x-ratelimit-limit")), (200, None));
    assert_eq!(status(&with(UnknownTier::Deny), "ada").await, 503);
    let late = Directory::default().tiers(ms(1_001)).on_unknown(UnknownTier::Deny);
    assert_eq!(status(&layer(tiered(late.clone())), "ada").await, 503);
    assert_eq!(status(&layer(tiered(late).shadow()), "bob").await, 200, "in shadow mode");
}

#[tokio::test]
async fn a_limiter_chooses_alike() {
    let rule = |unknown| Rule::new("user", PRO).tier_lookup(failing().on_unknown(unknown));
    let with = |unknown| Limiter::new(memory(), [rule(unknown)]);
    let ada = Key::new("user", "ada");
    let quota = async |unknown| *with(unknown).check(&ada).await.expect("a decision").outcomes()[0].quota();
    assert_eq!(quota(UnknownTier::Own).await, PRO);
    assert_eq!(quota(UnknownTier::Quota(SMALL)).await, SMALL);
    assert!(with(UnknownTier::Skip).check(&ada).await.expect("a decision").outcomes().is_empty());
    assert!(with(UnknownTier::Deny).check(&ada).await.is_err());
    assert!(with(UnknownTier::Deny).peek(&ada).await.is_err());
    assert!(with(UnknownTier::Deny).check_n(&ada, 3).await.is_err());
    let shadow = Limiter::new(memory(), [Rule::new("own", PRO), rule(UnknownTier::Deny).shadow()]);
    assert!(shadow.check(&ada).await.is_ok_and(|decision| decision.is_allowed()), "shadow mode refuses nothing");
    // The counter to reset or to refund may be that of the tier.
    let own = with(UnknownTier::Own);
    assert!(own.check(&ada).await.expect("a decision").is_allowed());
    assert!(own.reset(&ada).await.is_err());
    assert!(own.refund(&ada, 1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn the_log_and_explain_name_the_policy_the_cause_and_what_applies() {
    for (lookup, expected, cause) in [
        (failing().on_unknown(UnknownTier::Quota(SMALL)), 1_000, "the directory is away"),
        (Directory::default().tiers(ms(2_000)), 100_000, "a lookup took longer than its timeout of 1s"),
    ] {
        let (log, layer) = (Log::default(), layer(tiered(lookup)));
        let noting = log.note(Level::TRACE);
        assert_eq!([limit(&layer, "sk_live").await, limit(&layer, "sk_live").await], [expected; 2]);
        drop(noting);
        let [line] = &log.lines("tier_unknown")[..] else { panic!("one line: {}", log.text()) };
        assert!([cause, r#"policy="token""#, "applies="].iter().all(|part| line.contains(part)), "{line}");
        assert_eq!(log.count("sk_live"), 0, "it may be a secret: {}", log.text());
        let explained = layer.live().explain(&with_token("sk_live").into_parts().0).to_string();
        assert!(explained.contains("its tier could not be looked up: on_unknown decides the quota"), "{explained}");
    }
}
