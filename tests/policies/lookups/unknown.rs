//! Keys that could not be found out: what becomes of their requests.

use std::future::ready;
use std::io;

use tollgate::key::{self, Extracted};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::store::BreakerState;
use tollgate::{Ban, Error, Key, OnFailure, Policy, Quota};
use tollgate_test::Recorded;

use super::rig::{Directory, MANY, by, layer, ms, send, status, statuses, with_token};
use crate::rig::{HOUR, Rig, and, line};

const TWO: Quota = Quota::fixed_window(2, HOUR);

/// Counts by a key whose lookup fails.
fn broken(quota: Quota) -> Policy {
    let directory = Directory::default();
    Policy::new("account", quota).key(directory.accounts_by(|_| ready(Err("the directory is away"))))
}

fn stolen() -> AccessList {
    AccessList::default().key_of("account", "stolen")
}

#[tokio::test(start_paused = true)]
async fn the_layer_and_the_policy_say_what_becomes_of_requests_with_an_unknown_key() {
    let (allow, deny) = (OnFailure::Allow, OnFailure::Deny);
    let fall_back = OnFailure::default();
    let late = || Policy::new("account", TWO).key(Directory::default().accounts(ms(1_001)));
    let unknown = || -> Result<Key, Error> { Err(Error::store("no answer", io::Error::other("gone"))) };
    let at_once = || Policy::new("user", TWO).key(key::from_fn(move |_| unknown()));
    let found = || by(key::lookup(key::global(), move |_| ready(Ok::<_, &str>(unknown()))));
    for (what, policy, rule, expected) in [
        ("by default they count together", broken(TWO), fall_back, [200, 200, 429, 429]),
        ("what is late is unknown", late(), fall_back, [200, 200, 429, 429]),
        ("an extractor can say so", at_once(), fall_back, [200, 200, 429, 429]),
        ("the policy is not applied", broken(TWO), allow, [200; 4]),
        ("they are refused", broken(MANY), deny, [503; 4]),
        ("late ones are, too", late(), deny, [503; 4]),
        ("and what a lookup found to be so", found(), deny, [503; 4]),
        ("as missing ones are", broken(MANY).missing_key(MissingKey::Deny), fall_back, [503; 4]),
        ("a shadow refuses none", broken(TWO).shadow(), deny, [200; 4]),
        ("a shadow that is late", late().shadow(), deny, [200; 4]),
        ("a shadow with a list", broken(TWO).deny(stolen()).shadow(), deny, [200; 4]),
    ] {
        assert_eq!(statuses(&layer(policy).on_failure(rule)).await, expected, "{what}");
    }
    let both = layer(broken(MANY)).policy(Policy::new("all", TWO)).on_failure(OnFailure::Allow);
    assert_eq!(statuses(&both).await, [200, 200, 429, 429], "other policies apply");
    let denying = layer(broken(MANY)).on_failure(OnFailure::Deny);
    let response = send(&denying, with_token("ada")).await;
    assert_eq!((response.status().as_u16(), line(&response, "retry-after")), (503, "1"));
    assert_eq!(denying.live().breaker_state(), BreakerState::Closed, "the store did not fail");
}

#[tokio::test(start_paused = true)]
async fn a_denied_client_does_not_pass_by_having_look_ups_fail() {
    let late = Directory::default().accounts(ms(10)).in_flight(1);
    let layer = layer(by(late).deny(stolen())).timeout(HOUR);
    let (busy, full) = tokio::join!(status(&layer, "made-up"), status(&layer, "stolen"));
    assert_eq!((busy, full), (200, 503));
    assert_eq!([status(&layer, "stolen").await, status(&layer, "ada").await], [403, 200]);
    // Nor by the other part of its key that is looked up and missing.
    let nobody = Directory::default().accounts_by(|_| ready(Ok(Extracted::Missing)));
    let evil = AccessList::default().key_of("header x-tenant", "evil");
    let joined = super::rig::layer(by((nobody, key::header("x-tenant"))).deny(evil));
    for _ in 0..2 {
        assert_eq!(send(&joined, and(with_token("made-up"), "x-tenant", "evil")).await.status(), 403);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_lookup_found_to_be_missing_is_never_banned_for_all_whatever_is_looked_up_next() {
    let rig = Rig::new();
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
