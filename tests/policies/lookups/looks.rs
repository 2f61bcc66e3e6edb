//! What is known of a request is looked at before anything is looked up.

use std::time::Duration;

use tollgate::key;
use tollgate::store::{Ask, Check, Counter, DenyCache, LeaseStore, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Decision, Key, Policy, Quota, RateLimitLayer};

use super::rig::{Answered, Directory, HOUR, Rig, by, ms, on_each_store, send, status, tiered, with_token};
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

/// What a client is told of a refusal.
fn told(response: &Answered) -> Vec<String> {
    let headers = ["x-ratelimit-remaining", "x-ratelimit-limit", "retry-after", "ratelimit"];
    headers
        .map(|name| response.headers().get(name).map_or("none", |value| value.to_str().expect("ASCII")).to_owned())
        .into()
}

#[tokio::test]
async fn a_refusal_before_a_lookup_is_told_as_any_other() {
    on_each_store(async |rig| {
        for quota in EACH {
            for (cost, taken) in [(1, 4), (1, 3), (2, 3), (2, 2), (4, 1), (5, 0), (3, 2)] {
                let name = format!("a{cost}-{taken}-{:?}-{}", quota.algorithm(), quota.limit());
                let all = Policy::new(&name, quota).cost_by(move |_| cost);
                let directory = Directory::default();
                let without = rig.layer([all.clone()]);
                let with = rig.layer([all, tiered(directory.tiers(ms(0)))]);
                let counter =
                    Counter::new(name.as_str().try_into().expect("a valid name"), Key::new("global", ""), quota);
                for _ in 0..taken {
                    let decided = rig.store.decide(&[Check::new(counter.clone(), 1)], Ask::default()).wait().await;
                    assert!(decided.expect("the store decides").decision.is_allowed());
                }
                let expected = send(&without, with_token("ada")).await;
                if expected.status() != 429 {
                    continue;
                }
                let refused = send(&with, with_token("ada")).await;
                assert_eq!((refused.status().as_u16(), directory.asked()), (429, 0), "{} {name}", rig.name);
                let (mut expected, mut refused) = (told(&expected), told(&refused));
                if cost > 1 {
                    // How much less than its cost is left, a look does not say.
                    expected.drain(..1);
                    refused.drain(..1);
                    assert_eq!(expected[..2], refused[..2], "{} {name}", rig.name);
                } else {
                    assert_eq!(expected, refused, "{} {name}", rig.name);
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_refused_by_a_look_is_what_a_decision_refuses() {
    on_each_store(async |rig| {
        for quota in EACH {
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
        let directory = Directory::default();
        let all = Policy::new("all", Quota::fixed_window(10, HOUR)).cost(2);
        let layer = rig.layer([all, tiered(directory.tiers(ms(0)))]);
        for (request, left) in [8, 6, 4, 2, 0].into_iter().enumerate() {
            let response = send(&layer, with_token(&format!("{request}"))).await;
            assert_eq!(
                response.headers()["ratelimit"].to_str().expect("ASCII").matches(&format!("r={left}")).count(),
                1
            );
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
async fn policies_in_shadow_and_free_requests_need_no_look_and_refuse_nothing() {
    on_each_store(async |rig| {
        let directory = Directory::default();
        let one = Quota::fixed_window(1, HOUR);
        let layer = rig.layer([
            Policy::new("shadow", one).shadow(),
            Policy::new("free", one).cost_by(|_| 0),
            by(directory.accounts(ms(0))),
        ]);
        for token in 0..4 {
            assert_eq!(status(&layer, &format!("{token}")).await, 200);
        }
        assert_eq!((directory.asked(), rig.asked()), (4, (4, 0)), "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_policy_refuses_at_once_that_does_not_have_to_ask() {
    let directory = Directory::default();
    let rig = Rig::memory();
    let deny = tollgate::policy::AccessList::parse(["192.0.2.0/24"]).expect("a network");
    let layer =
        rig.layer([by(directory.accounts(ms(0))), Policy::new("listed", EACH[0]).key(key::peer_ip()).deny(deny)]);
    assert_eq!(status(&layer, "ada").await, 403);
    let missing =
        Policy::new("missing", EACH[0]).key(key::header("x-none")).missing_key(tollgate::policy::MissingKey::Deny);
    let layer = rig.layer([by(directory.accounts(ms(0))), missing]);
    assert_eq!(status(&layer, "ada").await, 403);
    assert_eq!((directory.asked(), rig.asked()), (0, (0, 0)));
}

#[tokio::test]
async fn a_deny_cache_learns_from_looks_and_admits_again_in_time() {
    let clock = ManualClock::new();
    let memory = memory(&clock);
    let store = DenyCache::builder(memory).clock(clock.clone()).build();
    let directory = Directory::default();
    let all = Policy::new("all", Quota::token_bucket(4, Duration::from_secs(2))).cost(3);
    let layer = RateLimitLayer::composite(store.clone()).policies([all, tiered(directory.tiers(ms(0)))]);
    let mut expected = Vec::new();
    for (token, (millis, answer, answered)) in
        [(0, 200, 0), (0, 429, 0), (0, 429, 1), (400, 429, 2), (999, 429, 3), (1_000, 200, 3)].into_iter().enumerate()
    {
        clock.set(at(millis * 1_000));
        assert_eq!(status(&layer, &format!("{token}")).await, answer, "at {millis} ms");
        assert_eq!(store.denied_from_cache(), answered, "at {millis} ms");
        expected.extend((answer == 200).then_some(()));
        assert_eq!(directory.asked(), expected.len());
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
    let counter = Counter::new("all".try_into().expect("a valid name"), Key::new("global", ""), quota);
    let others_take = |check: Check| async {
        store.decide(&[check], Ask::default()).wait().await.expect("memory decides").decision.is_allowed()
    };
    let rest = 100 - sent - held;
    assert!(rest == 0 || others_take(Check::new(counter, rest).floor(0)).await);
    let directory = Directory::default();
    let layer = RateLimitLayer::composite(store.clone()).policies([all, tiered(directory.tiers(ms(0)))]);
    send(&layer, with_token("bob")).await;
    assert_eq!(directory.asked(), 1, "{held} units are held");
}

#[tokio::test]
async fn refusals_before_a_lookup_are_strikes_and_a_ban_is_seen_before_it() {
    on_each_store(async |rig| {
        for cost in [1, 2] {
            let ban = Ban::new(3, HOUR, HOUR).of_verified_keys();
            let name = format!("banned{cost}");
            let all = Policy::new(&name, Quota::fixed_window(2, HOUR)).cost(cost).key(key::header("x-token")).ban(ban);
            let directory = Directory::default();
            let layer = rig.layer([all, tiered(directory.tiers(ms(0)))]);
            let admitted = usize::try_from(2 / cost).expect("it is small");
            for request in 1..=admitted + 5 {
                let response = send(&layer, with_token(&name)).await;
                let decision = response.extensions().get::<Decision>().expect("a decision");
                // The third refusal begins the ban.
                let expected = (request <= admitted, request >= admitted + 3);
                assert_eq!((response.status() == 200, decision.is_banned()), expected, "{} {request}", rig.name);
            }
            assert_eq!(directory.asked(), admitted.min(1), "{}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_is_looked_up_however_many_strikes_ban_its_key() {
    on_each_store(async |rig| {
        for after in [65_534, 65_535, 65_536] {
            let (name, ban) = (format!("all{after}"), Ban::new(after, HOUR, HOUR).of_verified_keys());
            let all = Policy::new(&name, Quota::fixed_window(4, HOUR)).key(key::header("x-token")).ban(ban);
            let directory = Directory::default();
            let layer = rig.layer([all, tiered(directory.tiers(ms(0)))]);
            assert_eq!(status(&layer, "ada").await, 200, "{}: {after}", rig.name);
            assert_eq!(directory.asked(), 1, "{}: {after}", rig.name);
        }
    })
    .await;
}
