//! Strikes go to the store, and bans are served from the cache.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Ask, BanCheck, Change, Check, DenyCache, MaybeFuture, Settles, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, MemoryStore, Quota, Source};

use super::rig::{EACH, Rig};
use crate::support::checks::{check, counter};
use crate::support::time::memory;

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
fn with_one_process_and_one_client_a_ban_begins_with_the_same_request_as_without_a_cache() {
    let mut cached = 0;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let (clock, quota) = (ManualClock::new(), EACH[rng.usize(..EACH.len())]);
        let settings = DenyCache::builder(memory(&clock)).max_ttl([HOUR, 20 * MS][rng.usize(..2)]);
        let (plain, cache) = (memory(&clock), settings.clock(clock.clone()).build());
        let ban = Ban::new(rng.u32(1..9), HOUR, 200 * MS).backoff(2.0, 800 * MS);
        let check = banning(quota, ban).settles([Settles::AsTaken, Settles::ByOutcome][rng.usize(..2)]);
        for _ in 0..300 {
            clock.advance(MS * [0, 0, 1, 5, 40, 130][rng.usize(..6)]);
            let (expected, found) = (decide(&plain, &check), decide(&cache, &check));
            cached += u64::from(is_cached(&found));
            assert!(found.is_banned() || !is_cached(&found), "seed {seed}, {quota}, {check:?}");
            let of = |decision: &Decision| (decision.is_allowed(), decision.is_banned());
            assert_eq!(of(&found), of(&expected), "seed {seed}, {quota}, {check:?}");
            let [expected, found] = [expected, found].map(|decision| decision.retry_after());
            assert_eq!(found, expected, "seed {seed}, {quota}, {check:?}");
        }
    }
    assert!(cached > 1_000, "{cached} were cached");
}

#[test]
fn refusals_go_to_the_store_until_the_key_is_banned() {
    let rig = Rig::with(|settings| settings.max_ttl(HOUR));
    let check = banning(QUOTA, Ban::new(3, HOUR, HOUR));
    let decisions: Vec<_> = (0..6).map(|_| decide(&rig.store, &check)).collect();
    let seen: Vec<_> = decisions.iter().map(|one| (is_cached(one), one.is_banned())).collect();
    let (store, banned, cached) = ((false, false), (false, true), (true, true));
    assert_eq!(seen, [store, store, store, banned, cached, cached]);
}

#[test]
fn a_refusal_beside_a_check_that_may_be_a_strike_goes_to_the_store() {
    let rig = Rig::with(|settings| settings.max_ttl(HOUR));
    rig.refuse("bob", QUOTA);
    let both = [banning(QUOTA, Ban::new(9, HOUR, HOUR)), check("bob", QUOTA, 1)];
    let _ = rig.asks(&both);
    let _ = rig.asks(&both);
    let _ = rig.remembers(&both[1..]);
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
fn a_lifted_ban_is_forgotten_at_once() {
    let rig = Rig::with(|settings| settings.max_ttl(HOUR));
    let check = banning(QUOTA, Ban::new(3, HOUR, HOUR));
    let banned = (0..6).map(|_| decide(&rig.store, &check).is_banned()).collect::<Vec<_>>();
    assert_eq!(banned, [false, false, false, true, true, true]);
    assert!(is_cached(&decide(&rig.store, &check)));
    for _ in 0..2 {
        drop(rig.store.adjust(&counter("ada", QUOTA), Change::Lift));
        assert!((0..2).all(|_| !decide(&rig.store, &check).is_banned()));
    }
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
fn refusals_by_a_cached_ban_are_no_strikes_once_it_is_over() {
    let rig = Rig::with(|settings| settings.max_ttl(Duration::from_secs(1)));
    let ban = Ban::new(3, HOUR, 500 * MS).backoff(2.0, HOUR).extending();
    let check = banning(QUOTA, ban);
    let banned = (0..10).filter(|_| decide(&rig.store, &check).is_banned()).count();
    assert_eq!(banned, 7, "of which the first is the third refusal");
    // It was not extended, as the ban began with the store's own time; but what the cache answered is no strike now.
    rig.clock.advance(500 * MS);
    let banned = (0..3).map(|_| decide(&rig.store, &check).is_banned()).collect::<Vec<_>>();
    assert_eq!(banned, [false, false, true]);
}

#[test]
fn a_short_ban_that_refusals_extend_goes_on_while_they_come() {
    let rig = Rig::with(|settings| settings.max_ttl(HOUR));
    let check = banning(QUOTA, Ban::new(1, HOUR, 200 * MS).extending());
    let _ = decide(&rig.store, &check);
    for request in 0..200 {
        assert!(decide(&rig.store, &check).is_banned(), "{request}");
        rig.clock.advance(50 * MS);
    }
    assert!(rig.store.denied_from_cache() >= 100);
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

#[test]
fn a_cache_around_a_cache_loses_no_strike() {
    let clock = ManualClock::new();
    let inner = DenyCache::builder(memory(&clock)).max_ttl(HOUR).clock(clock.clone()).build();
    let store = DenyCache::builder(inner).max_ttl(HOUR).clock(clock.clone()).build();
    let check = banning(QUOTA, Ban::new(5, HOUR, HOUR));
    let banned = (0..8).map(|_| decide(&store, &check).is_banned()).collect::<Vec<_>>();
    assert_eq!(banned, [false, false, false, false, false, true, true, true]);
}
