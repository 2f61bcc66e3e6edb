//! Keys that could not be found out: what becomes of their requests.

use std::future::ready;

use tollgate::key::{self, Extracted};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Ban, Error, Key, Limiter, OnFailure, Policy, Quota, RateLimitLayer, Rule};
use tollgate_test::Recorded;

use super::rig::{Directory, HOUR, MANY, Rig, by, memory, ms, on_each_store, send, status, with_token};

const TWO: Quota = Quota::fixed_window(2, HOUR);

/// Counts by a key whose lookup fails.
fn broken(quota: Quota) -> Policy {
    let directory = Directory::default();
    Policy::new("account", quota).key(directory.accounts_by(|_| ready(Err("the directory is away"))))
}

async fn statuses<const N: usize>(layer: &RateLimitLayer) -> [u16; N] {
    let mut statuses = [0; N];
    for (token, answer) in statuses.iter_mut().enumerate() {
        *answer = status(layer, &format!("{token}")).await.as_u16();
    }
    statuses
}

#[tokio::test]
async fn requests_with_an_unknown_key_count_together() {
    on_each_store(async |rig| {
        assert_eq!(statuses(&rig.layer([broken(TWO)])).await, [200, 200, 429, 429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_layer_that_allows_what_fails_does_not_apply_the_policy() {
    let allow = |policy| RateLimitLayer::new(memory(), policy).on_failure(OnFailure::Allow);
    assert_eq!(statuses(&allow(broken(TWO))).await, [200; 4]);
    assert_eq!(statuses(&allow(broken(MANY)).policy(Policy::new("all", TWO))).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn a_layer_that_denies_what_fails_answers_503() {
    let layer = RateLimitLayer::new(memory(), broken(MANY)).on_failure(OnFailure::Deny);
    let response = send(&layer, with_token("ada")).await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (503, &"1".parse().expect("text")));
    assert_eq!(statuses(&layer).await, [503; 4]);
    assert_eq!(layer.clone().live().breaker_state(), tollgate::store::BreakerState::Closed, "the store did not fail");
}

#[tokio::test]
async fn where_a_missing_key_is_refused_an_unknown_one_is_too() {
    let layer = RateLimitLayer::new(memory(), broken(MANY).missing_key(MissingKey::Deny));
    assert_eq!(statuses(&layer).await, [503; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_denied_client_does_not_pass_by_having_look_ups_fail() {
    let stolen = || AccessList::default().key_of("account", "stolen");
    let late = Directory::default().accounts(ms(10)).in_flight(1);
    let layer = RateLimitLayer::new(memory(), by(late).deny(stolen())).timeout(HOUR);
    let (busy, full) = tokio::join!(status(&layer, "made-up"), status(&layer, "stolen"));
    assert_eq!((busy.as_u16(), full.as_u16()), (200, 503));
    assert_eq!([status(&layer, "stolen").await, status(&layer, "ada").await], [403, 200]);
    let shadow = RateLimitLayer::new(memory(), broken(TWO).deny(stolen()).shadow());
    assert_eq!(statuses(&shadow).await, [200; 4]);
}

#[tokio::test]
async fn a_shadow_refuses_nothing_for_want_of_a_key() {
    let layer = RateLimitLayer::new(memory(), broken(TWO).shadow()).on_failure(OnFailure::Deny);
    assert_eq!(statuses(&layer).await, [200; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_lookup_found_to_be_missing_is_never_banned_for_all_whatever_is_looked_up_next() {
    let rig = Rig::memory();
    let nobody = Directory::default().accounts_by(|_| ready(Ok(Extracted::Missing)));
    let late = Directory::default().tiers_by(|_| async {
        tokio::time::sleep(ms(5)).await;
        Ok(Some(TWO))
    });
    let ban = Ban::new(1, HOUR, HOUR).of_verified_keys();
    let shared = by(nobody).missing_key(MissingKey::Share).tier_lookup(late).ban(ban);
    assert_eq!(statuses(&rig.layer([shared])).await, [200, 200, 429, 429]);
    let decided = rig.store.take().into_iter().filter_map(|call| match call {
        Recorded::Decide(checks) => Some(checks),
        _ => None,
    });
    let checks: Vec<_> = decided.flatten().collect();
    assert!(checks.len() >= 4 && checks.iter().all(|check| check.ban.is_none()), "{checks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_late_is_unknown() {
    let late = || Policy::new("account", TWO).key(Directory::default().accounts(ms(1_001)));
    assert_eq!(statuses(&RateLimitLayer::new(memory(), late())).await, [200, 200, 429, 429]);
    assert_eq!(statuses(&RateLimitLayer::new(memory(), late()).on_failure(OnFailure::Deny)).await, [503; 4]);
    let shadow = late().shadow();
    assert_eq!(statuses(&RateLimitLayer::new(memory(), shadow).on_failure(OnFailure::Deny)).await, [200; 4]);
}

#[tokio::test]
async fn an_extractor_can_say_that_it_does_not_know() {
    let unknown = || -> Result<Key, Error> { Err(Error::store("no answer", std::io::Error::other("gone"))) };
    let at_once = RateLimitLayer::new(memory(), Policy::new("user", TWO).key(key::from_fn(move |_| unknown())));
    assert_eq!(statuses(&at_once).await, [200, 200, 429, 429]);
    let found = key::lookup(key::global(), move |_| ready(Ok::<_, &str>(unknown())));
    assert_eq!(statuses(&RateLimitLayer::new(memory(), by(found)).on_failure(OnFailure::Deny)).await, [503; 4]);
}

#[tokio::test]
async fn the_first_that_refuses_ends_the_wait_for_the_others() {
    let refuses = Directory::default().accounts_by(|_| {
        ready(Ok(Extracted::Rejected(Box::new(
            http::Response::builder().status(401).body("who are you?".into()).expect("a response"),
        ))))
    });
    let hangs = key::lookup(key::header("x-token"), |_| std::future::pending::<Result<Key, &str>>());
    let hangs = Policy::new("hangs", MANY).key(hangs.timeout(ms(20_000)));
    let layer = Rig::memory().layer([hangs, by(refuses)]).on_failure(OnFailure::Deny);
    let start = std::time::Instant::now();
    assert_eq!(status(&layer, "ada").await, 401);
    assert!(start.elapsed() < ms(4_000), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_limiter_resets_and_refunds_no_other_counter_than_that_of_the_tier() {
    let directory = Directory::default();
    let failing = directory.tiers_by(|_| ready(Err("the directory is away")));
    let limiter = Limiter::new(memory(), [Rule::new("user", MANY).tier_lookup(failing)]);
    let ada = Key::new("user", "ada");
    assert!(limiter.check(&ada).await.expect("memory decides").is_allowed());
    assert!(limiter.reset(&ada).await.is_err());
    assert!(limiter.refund(&ada, 1).await.is_err());
}

#[tokio::test]
async fn a_limiter_goes_on_with_the_quota_it_has() {
    let lookup = Directory::default().tiers_by(|_| ready(Err("the directory is away")));
    let limiter = Limiter::new(memory(), [Rule::new("user", TWO).tier_lookup(lookup)]);
    let ada = Key::new("user", "ada");
    assert!(limiter.check_n(&ada, 2).await.expect("memory decides").is_allowed());
    assert!(!limiter.check(&ada).await.expect("memory decides").is_allowed());
}
