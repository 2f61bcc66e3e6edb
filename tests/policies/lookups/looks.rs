//! What is known of a request is looked at before anything is looked up.

use std::time::Duration;

use tollgate::key;
use tollgate::policy::{AccessList, MissingKey};
use tollgate::store::{DenyCache, LeaseStore};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Policy, Quota, RateLimitLayer};
use tollgate_test::Recorded;

use super::rig::{Directory, by, ms, send, status, tiered, with_token};
use crate::rig::{HOUR, Rig, line};
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

#[tokio::test]
async fn a_look_refuses_what_a_decision_refuses_and_it_is_told_as_any_other_refusal() {
    for quota in EACH {
        for (cost, taken) in [(1, 4), (1, 3), (2, 3), (2, 2), (4, 1), (5, 0), (3, 2)] {
            let (rig, directory, what) = (Rig::new(), Directory::default(), format!("{quota}: {cost} after {taken}"));
            let all = Policy::new("all", quota).cost_by(move |_| cost);
            let with = rig.layer([all.clone(), tiered(directory.tiers(ms(0)))]);
            for _ in 0..taken {
                let one = rig.layer([Policy::new("all", quota)]);
                assert_eq!(send(&one, with_token("ada")).await.status(), 200);
            }
            let expected = send(&rig.layer([all]), with_token("ada")).await;
            if expected.status() == 200 {
                continue;
            }
            let refused = send(&with, with_token("ada")).await;
            assert_eq!((refused.status().as_u16(), directory.asked()), (429, 0), "{what}");
            // How much less than a larger cost is left, a look does not say.
            let headers = ["x-ratelimit-limit", "retry-after", "x-ratelimit-remaining", "ratelimit"];
            for header in headers.into_iter().take(if cost == 1 { 4 } else { 2 }) {
                assert_eq!(line(&refused, header), line(&expected, header), "{what}");
            }
        }
    }
}

/// How often the store of a rig decided, and how often it looked.
fn asked(rig: &Rig) -> (usize, usize) {
    let asked = rig.store.recorded().into_iter().filter_map(|call| match call {
        Recorded::Decide(checks) => Some(checks.iter().all(|check| check.cost == 0)),
        _ => None,
    });
    let (looked, decided): (Vec<bool>, Vec<bool>) = asked.partition(|is_look| *is_look);
    (decided.len(), looked.len())
}

#[tokio::test]
async fn a_look_takes_nothing_and_a_request_that_is_admitted_takes_its_cost_once() {
    let rig = Rig::new();
    let all = Policy::new("all", Quota::fixed_window(10, HOUR)).cost(2);
    let layer = rig.layer([all, tiered(Directory::default().tiers(ms(0)))]);
    for (request, left) in [8, 6, 4, 2, 0].into_iter().enumerate() {
        let response = send(&layer, with_token(&format!("{request}"))).await;
        assert!(line(&response, "ratelimit").contains(&format!("\"all\";r={left};")));
    }
    assert_eq!(asked(&rig), (5, 5), "a look and a decision each");
    assert_eq!((status(&layer, "4").await, asked(&rig)), (429, (6, 5)), "what is remembered needs no look");
    assert_eq!((status(&layer, "5").await, asked(&rig).0), (429, 6), "a look is enough to refuse");
}

#[tokio::test]
async fn where_nothing_may_refuse_there_is_no_look_and_what_refuses_without_the_store_needs_none() {
    let one = Quota::fixed_window(1, HOUR);
    let (rig, directory) = (Rig::new(), Directory::default());
    let accounts = || by(directory.accounts(ms(0)));
    let (shadow, free) = (Policy::new("shadow", one).shadow(), Policy::new("free", one).cost_by(|_| 0));
    let layer = rig.layer([shadow, free, accounts()]);
    for token in 0..4 {
        assert_eq!(status(&layer, &format!("{token}")).await, 200);
    }
    assert_eq!((directory.asked(), asked(&rig)), (4, (4, 0)));
    let deny = AccessList::parse(["192.0.2.0/24"]).expect("a network");
    let listed = Policy::new("listed", one).key(key::peer_ip()).deny(deny);
    let missing = Policy::new("missing", one).key(key::header("x-none")).missing_key(MissingKey::Deny);
    for refusing in [listed, missing] {
        assert_eq!(status(&rig.layer([accounts(), refusing]), "ada").await, 403);
    }
    assert_eq!((directory.asked(), asked(&rig)), (4, (4, 0)));
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
    let all = Policy::new("all", Quota::fixed_window(100, HOUR));
    let plain = RateLimitLayer::new(store.clone(), all.clone());
    let mut sent = 0;
    while store.counts().held() == 0 {
        assert_eq!(status(&plain, "ada").await, 200);
        sent += 1;
    }
    // All that the inner store has left is taken by others.
    let rest = 100 - sent - store.counts().held();
    let others = RateLimitLayer::new(store.clone(), all.clone().cost_by(move |_| rest));
    assert_eq!(status(&others, "ada").await, 200);
    let directory = Directory::default();
    let layer = RateLimitLayer::composite(store.clone()).policies([all, tiered(directory.tiers(ms(0)))]);
    send(&layer, with_token("bob")).await;
    assert_eq!(directory.asked(), 1, "{:?}", store.counts());
}

#[tokio::test]
async fn refusals_before_a_lookup_are_strikes_and_a_ban_is_seen_before_it() {
    for (cost, admitted) in [(1, 2), (2, 1)] {
        let directory = Directory::default();
        let ban = Ban::new(3, HOUR, HOUR).of_verified_keys();
        let all = Policy::new("all", Quota::fixed_window(2, HOUR)).key(key::header("x-token")).ban(ban).cost(cost);
        let layer = Rig::new().layer([all, tiered(directory.tiers(ms(0)))]);
        for request in 1..=admitted + 5 {
            let response = send(&layer, with_token("ada")).await;
            let decision = response.extensions().get::<Decision>().expect("a decision");
            // The third refusal begins the ban.
            let expected = (request <= admitted, request >= admitted + 3);
            assert_eq!((response.status() == 200, decision.is_banned()), expected, "{request}");
        }
        assert_eq!(directory.asked(), 1);
    }
}
