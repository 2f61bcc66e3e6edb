//! What is known of a request is looked at before anything is looked up.

use std::time::Duration;

use tollgate::key;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::store::{Ask, Check, Counter, DenyCache, LeaseStore, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Policy, Quota, RateLimitLayer};

use super::rig::{Directory, by, ms, send, status, tiered, with_token};
use crate::rig::{HOUR, Rig, line, on_each_store};
use crate::support::time::{at, memory};

/// One of each algorithm, of which each admits four units at once.
const EACH: [Quota; 6] = [
    Quota::fixed_window(4, HOUR),
    Quota::sliding_log(4, HOUR),
    Quota::sliding_window(4, HOUR),
    Quota::token_bucket(4, HOUR),
    // Those that are admitted wait for their turn, by the real time.
    Quota::leaky_bucket(4, Duration::from_millis(40)).queue(3),
    Quota::token_bucket(60, HOUR).burst(4),
];

fn counter(policy: &str, quota: Quota) -> Counter {
    Counter::new(policy.try_into().expect("a valid name"), Key::new("global", ""), quota)
}

#[tokio::test]
async fn a_look_refuses_what_a_decision_refuses_and_it_is_told_as_any_other_refusal() {
    on_each_store(async |rig| {
        for quota in EACH {
            for (cost, taken) in [(1, 4), (1, 3), (2, 3), (2, 2), (4, 1), (5, 0), (3, 2)] {
                let name = format!("a{cost}-{taken}-{:?}-{}", quota.algorithm(), quota.limit());
                let all = Policy::new(&name, quota).cost_by(move |_| cost);
                let directory = Directory::default();
                let with = rig.layer([all.clone(), tiered(directory.tiers(ms(0)))]);
                for _ in 0..taken {
                    let check = Check::new(counter(&name, quota), 1);
                    let decided = rig.store.decide(&[check], Ask::default()).wait().await;
                    assert!(decided.expect("the store decides").decision.is_allowed());
                }
                let expected = send(&rig.layer([all]), with_token("ada")).await;
                if expected.status() == 200 {
                    continue;
                }
                let refused = send(&with, with_token("ada")).await;
                assert_eq!((refused.status().as_u16(), directory.asked()), (429, 0), "{} {name}", rig.name);
                for header in ["x-ratelimit-limit", "retry-after"] {
                    assert_eq!(line(&refused, header), line(&expected, header), "{} {name}", rig.name);
                }
                // How much less than a larger cost is left, a look does not say.
                for header in ["x-ratelimit-remaining", "ratelimit"].into_iter().filter(|_| cost == 1) {
                    assert_eq!(line(&refused, header), line(&expected, header), "{} {name}", rig.name);
                }
            }
            for cost in 1..=6 {
                let name = format!("b{cost}-{:?}-{}", quota.algorithm(), quota.limit());
                let all = Policy::new(&name, quota).cost_by(move |_| cost);
                let directory = Directory::default();
                let layer = rig.layer([all, tiered(directory.tiers(ms(0)))]);
                let mut admitted = 0;
                for token in 0..6 {
                    admitted += usize::from(status(&layer, &format!("{name}-{token}")).await == 200);
                }
                assert_eq!(directory.asked(), admitted, "{} {name}: one lookup for each that is admitted", rig.name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_look_takes_nothing_and_a_request_that_is_admitted_takes_its_cost_once() {
    on_each_store(async |rig| {
        let all = Policy::new("all", Quota::fixed_window(10, HOUR)).cost(2);
        let layer = rig.layer([all, tiered(Directory::default().tiers(ms(0)))]);
        for (request, left) in [8, 6, 4, 2, 0].into_iter().enumerate() {
            let response = send(&layer, with_token(&format!("{request}"))).await;
            assert!(line(&response, "ratelimit").contains(&format!("\"all\";r={left};")), "{}", rig.name);
        }
        assert_eq!(rig.asked(), (5, 5), "{}: a look and a decision each", rig.name);
        assert_eq!(status(&layer, "4").await, 429);
        assert_eq!(rig.asked(), (6, 5), "{}: what is remembered needs no look", rig.name);
        assert_eq!(status(&layer, "5").await, 429);
        assert_eq!(rig.asked().0, 6, "{}: a look is enough to refuse", rig.name);
    })
    .await;
}

#[tokio::test]
async fn where_nothing_may_refuse_there_is_no_look_and_what_refuses_without_the_store_needs_none() {
    let one = Quota::fixed_window(1, HOUR);
    let (rig, directory) = (Rig::memory(), Directory::default());
    let accounts = || by(directory.accounts(ms(0)));
    let (shadow, free) = (Policy::new("shadow", one).shadow(), Policy::new("free", one).cost_by(|_| 0));
    let layer = rig.layer([shadow, free, accounts()]);
    for token in 0..4 {
        assert_eq!(status(&layer, &format!("{token}")).await, 200);
    }
    assert_eq!((directory.asked(), rig.asked()), (4, (4, 0)));
    let deny = AccessList::parse(["192.0.2.0/24"]).expect("a network");
    let listed = Policy::new("listed", one).key(key::peer_ip()).deny(deny);
    let missing = Policy::new("missing", one).key(key::header("x-none")).missing_key(MissingKey::Deny);
    for refusing in [listed, missing] {
        assert_eq!(status(&rig.layer([accounts(), refusing]), "ada").await, 403);
    }
    assert_eq!((directory.asked(), rig.asked()), (4, (4, 0)));
}

#[tokio::test]
async fn a_deny_cache_learns_from_looks_and_admits_again_in_time() {
    let clock = ManualClock::new();
    let store = DenyCache::builder(memory(&clock)).clock(clock.clone()).build();
    let directory = Directory::default();
    let all = Policy::new("all", Quota::token_bucket(4, Duration::from_secs(2))).cost(3);
    let layer = RateLimitLayer::composite(store.clone()).policies([all, tiered(directory.tiers(ms(0)))]);
    for (token, (millis, answer, cached, looked_up)) in
        [(0, 200, 0, 1), (0, 429, 0, 1), (0, 429, 1, 1), (400, 429, 2, 1), (999, 429, 3, 1), (1_000, 200, 3, 2)]
            .into_iter()
            .enumerate()
    {
        clock.set(at(millis * 1_000));
        assert_eq!(status(&layer, &format!("{token}")).await, answer, "at {millis} ms");
        assert_eq!((store.denied_from_cache(), directory.asked()), (cached, looked_up), "at {millis} ms");
    }
}

#[tokio::test]
async fn units_that_are_leased_here_are_not_missed_by_a_look() {
    let store = LeaseStore::new(memory(&ManualClock::new()));
    let quota = Quota::fixed_window(100, HOUR);
    let all = Policy::new("all", quota);
    let plain = RateLimitLayer::new(store.clone(), all.clone());
    let mut sent = 0;
    while store.counts().held() == 0 && sent < 60 {
        assert_eq!(status(&plain, "ada").await, 200);
        sent += 1;
    }
    let held = store.counts().held();
    assert!(held > 0, "leases are there");
    // All that the inner store has left is taken by others.
    let rest = 100 - sent - held;
    let taken = store.decide(&[Check::new(counter("all", quota), rest).floor(0)], Ask::default()).wait().await;
    assert!(rest == 0 || taken.expect("memory decides").decision.is_allowed());
    let directory = Directory::default();
    let layer = RateLimitLayer::composite(store.clone()).policies([all, tiered(directory.tiers(ms(0)))]);
    send(&layer, with_token("bob")).await;
    assert_eq!(directory.asked(), 1, "{held} units are held");
}

#[tokio::test]
async fn refusals_before_a_lookup_are_strikes_and_a_ban_is_seen_before_it() {
    let banned = |name: &str, quota, after| {
        let ban = Ban::new(after, HOUR, HOUR).of_verified_keys();
        Policy::new(name, quota).key(key::header("x-token")).ban(ban)
    };
    on_each_store(async |rig| {
        for (cost, admitted) in [(1, 2), (2, 1)] {
            let name = format!("banned{cost}");
            let directory = Directory::default();
            let all = banned(&name, Quota::fixed_window(2, HOUR), 3).cost(cost);
            let layer = rig.layer([all, tiered(directory.tiers(ms(0)))]);
            for request in 1..=admitted + 5 {
                let response = send(&layer, with_token(&name)).await;
                let decision = response.extensions().get::<Decision>().expect("a decision");
                // The third refusal begins the ban.
                let expected = (request <= admitted, request >= admitted + 3);
                assert_eq!((response.status() == 200, decision.is_banned()), expected, "{} {request}", rig.name);
            }
            assert_eq!(directory.asked(), 1, "{}", rig.name);
        }
        for after in [65_534, 65_535, 65_536] {
            let directory = Directory::default();
            let all = banned(&format!("all{after}"), EACH[0], after);
            let layer = rig.layer([all, tiered(directory.tiers(ms(0)))]);
            assert_eq!((status(&layer, "ada").await, directory.asked()), (200, 1), "{}: {after}", rig.name);
        }
    })
    .await;
}
