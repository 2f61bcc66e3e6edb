//! What can never be ready is an error, and a store that fails makes a service wait.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::key::{Lookup, header};
use tollgate::policy::TierLookup;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Ban, Error, Key, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Rule};
use tollgate_shed::BackPressureLayer;
use tollgate_test::RecordingStore;
use tower::{Layer, Service, ServiceExt};
use tracing::Level;

use super::{SECOND, decides, echo, is_ready, key, memory};
use crate::log::Log;

fn error(rule: Rule) -> Error {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("fine", Quota::per_hour(5)), rule]);
    BackPressureLayer::try_new(limiter, key()).expect_err("it would never be ready")
}

#[test]
fn rules_that_would_never_be_ready_are_errors_whatever_their_tiers() {
    let ban = error(Rule::new("mail", Quota::per_hour(5)).ban(Ban::new(3, SECOND, SECOND)));
    assert!(ban.is_invalid());
    assert_eq!(ban.to_string(), "rule \"mail\" bans keys that wait: remove the ban");
    let tiers = TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) });
    let mail = || Rule::new("mail", Quota::per_hour(5)).cost(10).tier_lookup(tiers.clone());
    let cost = error(mail());
    assert_eq!(cost.to_string(), "rule \"mail\" costs 10 and holds 5 at most: it would never be ready");
    let shadow = mail().shadow();
    assert!(BackPressureLayer::try_new(Limiter::new(MemoryStore::new(), [shadow]), key()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_service_waits_while_no_decision_can_be_made_and_goes_on_after_that() {
    let store = FailingStore::new(memory(&ManualClock::paused()));
    store.fail();
    let limiter = Limiter::new(store.clone(), [Rule::new("mail", Quota::per_hour(5))]).on_failure(OnFailure::Deny);
    let mut service = BackPressureLayer::new(limiter, key()).layer(echo());
    let start = Instant::now();
    let waiting = tokio::spawn(async move { service.ready().await.unwrap().call(1).await });
    tokio::time::sleep(5 * SECOND).await;
    assert!(!waiting.is_finished());
    store.work();
    assert_eq!(waiting.await.unwrap(), Ok(1));
    assert!(start.elapsed() <= Duration::from_millis(6_200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn rules_that_are_replaced_are_followed_and_those_by_which_nothing_is_ever_ready_are_told_once_a_minute() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let store = RecordingStore::new(memory(&ManualClock::paused()));
    let policy = |quota| Policy::new("mail", quota).key(header("x-job"));
    let hour = Quota::per_hour(1);
    let limits = RateLimitLayer::new(store.clone(), policy(hour)).live();
    let layer = BackPressureLayer::new(limits.limiter(), key());
    let mut service = layer.layer(echo());
    service.ready().await.unwrap().call(1).await.unwrap();

    // It would be banned if it went on to call the store.
    let banning = policy(hour).ban(Ban::new(2, 100 * SECOND, 1_000 * SECOND).of_verified_keys());
    limits.replace_policies([banning]).expect("they are valid");
    store.take();
    let waiting = tokio::spawn(async move { service.ready().await.unwrap().call(2).await });
    tokio::time::sleep(100 * SECOND).await;
    assert!(!waiting.is_finished());
    assert_eq!(decides(&store), 0);
    assert_never_ready(&log, "rule \"mail\" bans keys that wait: remove the ban");

    let start = Instant::now();
    limits.replace_policies([policy(Quota::per_hour(100))]).expect("they are valid");
    assert_eq!(waiting.await.unwrap(), Ok(2));
    assert!(start.elapsed() <= 2 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn rules_that_are_replaced_during_a_long_pause_are_followed_within_about_a_minute() {
    let daily = |limit| Policy::new("mail", Quota::fixed_window(limit, 86_400 * SECOND));
    let limits = RateLimitLayer::new(memory(&ManualClock::paused()), daily(1)).live();
    let mut service = BackPressureLayer::new(limits.limiter(), Key::new("global", "")).layer(echo());
    service.ready().await.unwrap().call(1).await.unwrap();
    assert!(!is_ready(&mut service));
    limits.replace_policies([daily(100)]).expect("they are valid");
    let start = Instant::now();
    service.ready().await.unwrap();
    assert!(start.elapsed() <= 66 * SECOND + SECOND / 10, "{:?}", start.elapsed());
}

/// Checks that this is what was logged within two minutes: a line in each, and no more.
#[track_caller]
fn assert_never_ready(log: &Log, reason: &str) {
    let lines = log.lines("code=\"never_ready\"");
    assert!(matches!(lines.len(), 1 | 2), "{}", log.text());
    for line in &lines {
        assert!(line.contains("WARN") && line.contains(&format!("reason={reason:?}")), "{line}");
    }
    assert_eq!(log.count(""), lines.len(), "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_never_holds_the_cost_is_told_once_a_minute_until_it_does() {
    let (log, store) = (Log::default(), RecordingStore::new(memory(&ManualClock::paused())));
    let _noting = log.note(Level::WARN);
    let most = Arc::new(AtomicU64::new(2));
    let of = Arc::clone(&most);
    // Nothing is cached.
    let tiers = TierLookup::new(move |_| {
        let tier = Quota::per_hour(of.load(Ordering::Relaxed));
        async move { Ok::<_, Infallible>(Some(tier)) }
    });
    let rule = Rule::new("mail", Quota::per_hour(10)).cost(5).tier_lookup(tiers.capacity(0));
    let layer = BackPressureLayer::new(Limiter::new(store.clone(), [rule]), key());
    let mut service = layer.layer(echo());
    assert!(tokio::time::timeout(100 * SECOND, service.ready()).await.is_err());
    assert_never_ready(&log, "the cost is more than the quota of a tier ever holds");
    let asked = decides(&store);
    assert!((80..=101).contains(&asked), "{asked} in 100 s");
    most.store(20, Ordering::Relaxed);
    let start = Instant::now();
    assert_eq!(service.ready().await.unwrap().call(1).await, Ok(1));
    assert!(start.elapsed() <= 2 * SECOND, "{:?}", start.elapsed());
}
