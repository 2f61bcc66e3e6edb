//! Strikes of requests that are refused from the cache, and bans.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Answer, BanCheck, Change, Check, Deadline, Settles, Store};
use tollgate::test_util::{ManualClock, Recorded};
use tollgate::{Ban, Decision, DenyCache, MemoryStore, Quota, Source};

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
    let Answer::Ready(decided) = store.decide(std::slice::from_ref(check), Deadline::none()) else {
        panic!("memory does not wait")
    };
    decided.expect("memory does not fail").decision
}

fn is_cached(decision: &Decision) -> bool {
    decision.source() == Source::DenyCache
}

#[test]
fn with_one_process_and_one_client_a_ban_begins_with_the_same_request_as_without_a_cache() {
    let (mut cached, mut banned) = (0, 0);
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let (clock, quota) = (ManualClock::new(), EACH[rng.usize(..EACH.len())]);
        let settings = DenyCache::builder().cap([HOUR, 20 * MS][rng.usize(..2)]).with_clock(clock.clone());
        let (plain, cache) = (memory(&clock), settings.build(memory(&clock)).expect("valid settings"));
        let ban = Ban::new(rng.u32(1..9), HOUR, 200 * MS).growing(2.0, 800 * MS);
        let check = banning(quota, ban).settles([Settles::AsTaken, Settles::ByOutcome][rng.usize(..2)]);
        for _ in 0..300 {
            clock.advance(MS * [0, 0, 1, 5, 40, 130][rng.usize(..6)]);
            let (expected, found) = (decide(&plain, &check), decide(&cache, &check));
            cached += u64::from(is_cached(&found));
            banned += u64::from(is_cached(&found) && found.is_banned());
            let of = |decision: &Decision| (decision.is_allowed(), decision.is_banned());
            assert_eq!(of(&found), of(&expected), "seed {seed}, {quota}, {check:?}");
            let [expected, found] = [expected, found].map(|decision| decision.retry_after());
            assert_eq!(found, expected, "seed {seed}, {quota}, {check:?}");
        }
    }
    assert!(cached > 5_000 && banned > 1_000, "{cached} were cached, {banned} of them bans");
}

#[test]
fn strikes_are_carried_once_and_not_beyond_their_window() {
    let rig = Rig::with(|settings| settings.cap(HOUR));
    let check = banning(QUOTA, Ban::new(10, Duration::from_secs(60), HOUR));
    let carried = || {
        let decisions = rig.store.inner().take().into_iter().filter_map(|call| match call {
            Recorded::Decide(checks) => checks[0].ban.as_ref().map(|ban| (ban.carried, ban.age)),
            _ => None,
        });
        decisions.collect::<Vec<_>>()
    };
    let requests = |times| (0..times).filter(|_| !is_cached(&decide(&rig.store, &check))).count();
    // The one that is admitted, and the first refusal, after which 9 strikes are left.
    assert_eq!((requests(2), carried()), (2, vec![(0, Duration::ZERO); 2]));
    rig.clock.advance(Duration::from_secs(1));
    assert_eq!(requests(3), 0);
    rig.clock.advance(Duration::from_secs(2));
    let Answer::Ready(Ok(_)) = rig.store.probe(std::slice::from_ref(&check), Deadline::none()) else {
        panic!("no wait")
    };
    assert!(matches!(&rig.store.inner().take()[..], [Recorded::Probe(checks)]
        if checks[0].ban.as_ref().is_some_and(|ban| (ban.carried, ban.age) == (3, Duration::from_secs(2)))));
    // 5 are left: 4 from the cache, and the last one begins the ban.
    assert_eq!((requests(4), requests(1), carried()), (0, 1, vec![(4, Duration::ZERO)]));
    assert!(decide(&rig.store, &check).is_banned());
    let old = banning(QUOTA, Ban::new(10, Duration::from_secs(1), HOUR));
    drop(rig.store.adjust(&counter("ada", QUOTA), Change::Lift));
    rig.store.inner().take();
    for _ in 0..4 {
        let _ = decide(&rig.store, &old);
    }
    rig.clock.advance(Duration::from_secs(1));
    let Answer::Ready(Ok(_)) = rig.store.probe(&[old], Deadline::none()) else { panic!("no wait") };
    assert!(matches!(&rig.store.inner().take()[..], [.., Recorded::Probe(checks)]
        if checks[0].ban.as_ref().is_some_and(|ban| ban.carried == 0)));
}

#[test]
fn a_lifted_ban_is_forgotten_at_once_with_the_strikes_in_the_cache() {
    let rig = Rig::with(|settings| settings.cap(HOUR));
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
fn refusals_from_the_cache_extend_a_ban_with_the_next_call() {
    let rig = Rig::with(|settings| settings.cap(Duration::from_secs(1)));
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
    let rig = Rig::with(|settings| settings.cap(Duration::from_secs(1)));
    let ban = Ban::new(3, HOUR, 500 * MS).growing(2.0, HOUR).extending();
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
    let rig = Rig::with(|settings| settings.cap(HOUR));
    let check = banning(QUOTA, Ban::new(1, HOUR, 200 * MS).extending());
    let _ = decide(&rig.store, &check);
    for request in 0..200 {
        assert!(decide(&rig.store, &check).is_banned(), "{request}");
        rig.clock.advance(50 * MS);
    }
    assert!(rig.store.refused_from_cache() >= 100);
}

#[test]
fn two_processes_hold_back_no_more_than_they_answered() {
    let (clock, inner) = (ManualClock::new(), MemoryStore::new());
    let process = || DenyCache::builder().cap(HOUR).with_clock(clock.clone()).build(inner.clone()).expect("valid");
    let (one, other) = (process(), process());
    let check = banning(QUOTA, Ban::new(10, HOUR, HOUR));
    let refused = (0..30).take_while(|round| !decide(if round % 2 == 0 { &one } else { &other }, &check).is_banned());
    // Without a cache it would be the eleventh request.
    assert!((11..=20).contains(&(refused.count() + 1)));
}

#[test]
fn a_cache_around_a_cache_loses_no_strike() {
    let clock = ManualClock::new();
    let settings = || DenyCache::builder().cap(HOUR).with_clock(clock.clone());
    let inner = settings().build(memory(&clock)).expect("valid settings");
    let store = settings().build(inner).expect("valid settings");
    let check = banning(QUOTA, Ban::new(5, HOUR, HOUR));
    let banned = (0..8).map(|_| decide(&store, &check).is_banned()).collect::<Vec<_>>();
    assert_eq!(banned, [false, false, false, false, false, true, true, true]);
}
