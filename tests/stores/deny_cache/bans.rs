//! Strikes go to the store, and bans are served from the cache.

use std::slice::from_ref;
use std::time::Duration;

use tollgate::store::{Ask, BanCheck, Change, Check, DenyCache, Store};
use tollgate::{Ban, MemoryStore, Quota, Source};

use super::rig::{Rig, now};
use crate::support::checks::{check, counter};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// One request an hour.
const QUOTA: Quota = Quota::fixed_window(1, HOUR);

fn banning(quota: Quota, ban: Ban) -> Check {
    check("ada", quota, 1).ban(BanCheck::new(ban))
}

#[test]
fn a_refusal_that_is_no_strike_is_served_from_the_cache() {
    let rig = Rig::new();
    let check = check("ada", QUOTA, 1).ban(BanCheck::new(Ban::new(3, HOUR, HOUR)).without_strikes());
    assert!(rig.asks(from_ref(&check)).is_allowed());
    assert!(!rig.asks(from_ref(&check)).is_banned());
    let _ = rig.remembers(&[check]);
}

#[test]
fn a_ban_that_is_lifted_by_a_counter_of_another_window_is_forgotten_at_once() {
    let rig = Rig::new();
    // Of a tier whose window is not that of the policy.
    let check = banning(Quota::fixed_window(1, 60 * MS), Ban::new(3, HOUR, HOUR));
    let banned = [(); 4].map(|()| rig.asks(from_ref(&check)).is_banned());
    assert_eq!(banned, [false, false, false, true]);
    assert!(rig.remembers(from_ref(&check)).is_banned());
    drop(rig.store.adjust(&counter("ada", QUOTA), Change::Lift));
    assert!((0..2).all(|_| !rig.asks(from_ref(&check)).is_banned()));
}

#[test]
fn refusals_from_the_cache_extend_a_ban_with_the_next_call() {
    let rig = Rig::new();
    let check = banning(QUOTA, Ban::new(1, HOUR, Duration::from_secs(10)).extending());
    let _ = rig.decide(from_ref(&check));
    for _ in 0..60 {
        for banned in [rig.asks(from_ref(&check)), rig.remembers(from_ref(&check))] {
            assert_eq!(banned.outcomes()[0].banned_for(), Some(Duration::from_secs(10)));
        }
        rig.clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn two_processes_ban_with_the_same_request_as_one() {
    let inner = MemoryStore::new();
    let processes = [(); 2].map(|()| DenyCache::builder(inner.clone()).max_ttl(HOUR).build());
    let check = banning(QUOTA, Ban::new(10, HOUR, HOUR));
    let is_banned =
        |round: &usize| now(processes[round % 2].decide(from_ref(&check), Ask::default()).wait()).decision.is_banned();
    assert_eq!((0..30).position(|round| is_banned(&round)), Some(10));
}

/// A policy that has a ban no more: the store does not look at it.
#[test]
fn a_ban_that_the_policy_has_no_more_is_not_served_and_costs_of_a_banned_client_cost_no_calls() {
    let (rig, quota) = (Rig::new(), Quota::fixed_window(100, HOUR));
    let banned = |cost| [banning(quota, Ban::new(1, HOUR, HOUR)).cost(cost)];
    // Refused, as it is too much: that bans.
    let _ = rig.asks(&banned(101));
    for request in 0..100_u64 {
        assert!(rig.decide(&banned(1 + request % 2)).is_banned());
    }
    assert!(rig.calls() <= 3, "{} calls for 100 requests of two costs", rig.calls() - 1);
    assert!(rig.asks(&[check("ada", quota, 1)]).is_allowed());
}

/// A look at a banned key, such as that of a status, is cached as the refusal of one unit: whose wait is longer.
#[test]
fn a_look_at_a_banned_key_does_not_shorten_the_wait_of_its_requests() {
    let (rig, check) = (Rig::new(), banning(QUOTA, Ban::new(1, HOUR, 700 * MS)));
    assert!(rig.asks(from_ref(&check)).is_allowed());
    let banned = rig.asks(from_ref(&check));
    assert!(banned.is_banned() && banned.retry_after() > Some(1_000 * MS), "the quota refuses for longer");
    assert_eq!(rig.decide(&[check.clone().cost(0)]).source(), Source::Store);
    assert!(rig.remembers(&[check]).retry_after() >= banned.retry_after());
}
