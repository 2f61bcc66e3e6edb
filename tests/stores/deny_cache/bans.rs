//! Strikes go to the store, and bans are served from the cache.

use std::time::Duration;

use tollgate::store::{Ask, BanCheck, Change, Check, DenyCache, MaybeFuture, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, MemoryStore, Quota, Source};

use super::rig::Rig;
use crate::support::checks::{check, counter};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// One request an hour.
const QUOTA: Quota = Quota::fixed_window(1, HOUR);

fn banning(quota: Quota, ban: Ban) -> Check {
    check("ada", quota, 1).ban(BanCheck::new(ban))
}

fn decide(store: &impl Store, check: &Check) -> Decision {
    let MaybeFuture::Ready(decided) = store.decide(std::slice::from_ref(check), Ask::default()) else {
        panic!("memory does not wait")
    };
    decided.expect("memory does not fail").decision
}

fn is_cached(decision: &Decision) -> bool {
    decision.source() == Source::DenyCache
}

#[test]
fn a_refusal_that_is_no_strike_is_served_from_the_cache() {
    let rig = Rig::with(|settings| settings.max_ttl(HOUR));
    let check = check("ada", QUOTA, 1).ban(BanCheck::new(Ban::new(3, HOUR, HOUR)).without_strikes());
    assert!(rig.asks(std::slice::from_ref(&check)).is_allowed());
    assert!(!rig.asks(std::slice::from_ref(&check)).is_banned());
    let _ = rig.remembers(&[check]);
}

#[test]
fn a_ban_that_is_lifted_by_a_counter_of_another_window_is_forgotten_at_once() {
    let rig = Rig::with(|settings| settings.max_ttl(HOUR));
    // Of a tier whose window is not that of the policy.
    let check = banning(Quota::fixed_window(1, 60 * MS), Ban::new(3, HOUR, HOUR));
    let banned = (0..6).map(|_| decide(&rig.store, &check).is_banned()).collect::<Vec<_>>();
    assert_eq!(banned, [false, false, false, true, true, true]);
    assert!(is_cached(&decide(&rig.store, &check)));
    drop(rig.store.adjust(&counter("ada", QUOTA), Change::Lift));
    assert!((0..2).all(|_| !decide(&rig.store, &check).is_banned()));
}

#[test]
fn refusals_from_the_cache_extend_a_ban_with_the_next_call() {
    let rig = Rig::with(|settings| settings.max_ttl(Duration::from_secs(1)));
    let check = banning(QUOTA, Ban::new(1, HOUR, Duration::from_secs(10)).extending());
    let _ = decide(&rig.store, &check);
    for second in 0..60 {
        for request in 0..2 {
            let banned = decide(&rig.store, &check);
            assert!(banned.is_banned(), "{second}");
            assert_eq!(is_cached(&banned), request > 0);
            assert_eq!(banned.outcomes()[0].banned_for(), Some(Duration::from_secs(10)));
        }
        rig.clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn two_processes_ban_with_the_same_request_as_one() {
    let (clock, inner) = (ManualClock::new(), MemoryStore::new());
    let process = || DenyCache::builder(inner.clone()).max_ttl(HOUR).clock(clock.clone()).build();
    let (one, other) = (process(), process());
    let check = banning(QUOTA, Ban::new(10, HOUR, HOUR));
    let refused = (0..30).take_while(|round| !decide(if round % 2 == 0 { &one } else { &other }, &check).is_banned());
    assert_eq!(refused.count() + 1, 11);
}

/// A policy that has a ban no more: the store does not look at it.
#[test]
fn a_ban_that_the_policy_has_no_more_is_not_served_and_costs_of_a_banned_client_cost_no_calls() {
    let (rig, quota) = (Rig::new(), Quota::fixed_window(100, HOUR));
    let banned = |cost| [check("ada", quota, cost).ban(BanCheck::new(Ban::new(1, HOUR, HOUR)))];
    // Refused, as it is too much: that bans.
    let _ = rig.asks(&banned(101));
    let before = rig.calls();
    for request in 0..100_u64 {
        assert!(rig.decide(&banned(1 + request % 2), Ask::default()).is_banned());
    }
    assert!(rig.calls() - before <= 2, "{} calls for 100 requests of two costs", rig.calls() - before);
    assert!(rig.asks(&[check("ada", quota, 1)]).is_allowed());
}

/// A look at a banned key, such as that of a status, is cached as the refusal of one unit: whose wait is longer.
#[test]
fn a_look_at_a_banned_key_does_not_shorten_the_wait_of_its_requests() {
    let rig = Rig::new();
    let banning = |cost| [check("ada", QUOTA, cost).ban(BanCheck::new(Ban::new(1, HOUR, 700 * MS)))];
    assert!(rig.asks(&banning(1)).is_allowed());
    let banned = rig.asks(&banning(1));
    let wait = banned.retry_after().expect("it helps to wait");
    assert!(banned.is_banned() && wait > Duration::from_secs(60), "the quota refuses for longer: {banned:?}");
    let _ = rig.decide(&banning(0), Ask::default());
    let told = rig.remembers(&banning(1)).retry_after().expect("it helps to wait");
    assert!(told >= wait, "{told:?} instead of {wait:?}");
}
