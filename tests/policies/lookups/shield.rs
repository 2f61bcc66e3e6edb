//! What is queried is not at the mercy of clients.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::advance;
use tollgate::key::{self, Extracted};
use tollgate::{Key, Limiter, Policy, Quota, RateLimitLayer, Rule};

use super::rig::{Directory, HOUR, MANY, by, memory, ms, on_each_store, send, status, tiered, told, with_token};

/// An address may send 109 requests.
fn address() -> Policy {
    Policy::new("address", Quota::fixed_window(109, HOUR)).key(key::peer_ip())
}

/// Sends 250 requests with made-up tokens, of which the address limit refuses 141.
async fn flood(layer: &RateLimitLayer) {
    let mut refused = 0;
    for token in 0..250 {
        refused += usize::from(status(layer, &format!("made-up-{token}")).await == 429);
    }
    assert_eq!(refused, 141);
}

#[tokio::test]
async fn made_up_keys_that_another_policy_refuses_are_not_looked_up() {
    on_each_store(async |rig| {
        let directory = Directory::default();
        flood(&rig.layer([address(), tiered(directory.tiers(ms(0)))])).await;
        assert_eq!(directory.asked(), 109, "{}", rig.name);
    })
    .await;
    on_each_store(async |rig| {
        let directory = Directory::default();
        flood(&rig.layer([by(directory.accounts(ms(0))), address()])).await;
        assert_eq!(directory.asked(), 109, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn requests_at_once_with_a_new_key_share_one_lookup() {
    on_each_store(async |rig| {
        let directory = Directory::default();
        let layer = rig.layer([tiered(directory.tiers(ms(5)))]);
        let limits = join_all((0..100).map(|_| told(&layer, "ada", "x-ratelimit-limit"))).await;
        assert!(limits.iter().all(|limit| limit == "200000"), "{limits:?}");
        assert_eq!(directory.asked(), 1, "{}", rig.name);
    })
    .await;
    on_each_store(async |rig| {
        let directory = Directory::default();
        let layer = rig.layer([by(directory.accounts(ms(5)))]);
        join_all((0..100).map(|_| status(&layer, "ada"))).await;
        assert_eq!(told(&layer, "ada", "x-ratelimit-remaining").await, "99899", "all had one key");
        assert_eq!(directory.asked(), 1, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_refused_keys_is_refused_from_memory() {
    let rig = super::rig::Rig::redis().await;
    let directory = Directory::default();
    let store = tollgate::store::DenyCache::new(rig.store.clone());
    let layer = RateLimitLayer::composite(store).policies([address(), tiered(directory.tiers(ms(0)))]);
    for token in 0..109 {
        assert_eq!(status(&layer.clone().timeout(Duration::from_secs(10)), &format!("{token}")).await, 200);
    }
    let before = rig.asked();
    for token in 109..250 {
        let response = send(&layer, with_token(&format!("{token}"))).await;
        assert_eq!(response.status(), 429);
        assert!(response.headers().contains_key("retry-after"));
    }
    let (decided, looked) = rig.asked();
    assert_eq!(decided - before.0, 0, "a look is enough to refuse");
    assert!(looked - before.1 <= 20, "one a second, and some on a slow machine: {}", looked - before.1);
}

#[tokio::test(start_paused = true)]
async fn no_more_lookups_are_under_way_than_may_be() {
    let directory = Directory::default();
    let lookup = directory.tiers(ms(20)).in_flight(3);
    let layer = RateLimitLayer::new(memory(), tiered(lookup));
    let limits = join_all((0..10).map(|n| {
        let layer = layer.clone();
        async move { told(&layer, &format!("user-{n}"), "x-ratelimit-limit").await }
    }))
    .await;
    assert_eq!(limits.iter().filter(|limit| *limit == "200000").count(), 3);
    assert_eq!(limits.iter().filter(|limit| *limit == "100000").count(), 7, "the others have the policy's own");
    assert_eq!(directory.asked(), 3);
    assert_eq!(told(&layer, "user-9", "x-ratelimit-limit").await, "200000", "that is not remembered");
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_for_its_lookup_counts_with_others_of_its_kind() {
    let directory = Directory::default();
    let policy = Policy::new("account", Quota::fixed_window(2, HOUR)).key(directory.accounts(ms(20)).in_flight(1));
    let layer = RateLimitLayer::new(memory(), policy);
    let statuses = join_all((0..4).map(|n| {
        let layer = layer.clone();
        async move { status(&layer, &format!("user-{n}")).await.as_u16() }
    }))
    .await;
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(directory.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_found_nothing_or_failed_is_remembered_for_a_moment() {
    let directory = Directory::default();
    let find = |token: key::Lookup| {
        let found = match token.text() {
            Some("broken") => Err("the directory is away"),
            Some("refused") => Ok(Extracted::Rejected(Box::default())),
            Some("known") => Ok(Extracted::Key(Key::new("account", "7"))),
            _ => Ok(Extracted::Missing),
        };
        std::future::ready(found)
    };
    let layer = RateLimitLayer::new(memory(), by(directory.accounts_by(find)));
    let mut expected = 0;
    for (token, remembered) in [("broken", 1_000), ("nobody", 10_000), ("refused", 10_000), ("known", 60_000)] {
        for (passes, lookups) in [(0, 1), (0, 0), (remembered - 1, 0), (1, 1), (0, 0)] {
            advance(ms(passes)).await;
            send(&layer, with_token(token)).await;
            expected += lookups;
            assert_eq!(directory.asked(), expected, "{token} after {passes} ms more");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_key_has_no_quota_of_its_own_is_remembered_for_ten_seconds() {
    let directory = Directory::default();
    let layer = RateLimitLayer::new(memory(), tiered(directory.tiers_by(|_| std::future::ready(Ok(None)))));
    for (passes, lookups) in [(0, 1), (9_999, 1), (1, 2), (0, 2)] {
        advance(ms(passes)).await;
        assert_eq!(told(&layer, "ada", "x-ratelimit-limit").await, "100000");
        assert_eq!(directory.asked(), lookups, "after {passes} ms more");
    }
}

#[tokio::test]
async fn a_limiter_shields_what_it_looks_up_too() {
    let directory = Directory::default();
    let all = Rule::new("all", Quota::fixed_window(1, HOUR));
    let limiter = Limiter::new(memory(), [all, Rule::new("user", MANY).tier_lookup(directory.tiers(ms(1)))]);
    let (ada, bob) = (Key::new("user", "ada"), Key::new("user", "bob"));
    let both = join_all([limiter.peek(&ada), limiter.peek(&ada)]).await;
    assert!(both.iter().all(|look| look.as_ref().is_ok_and(|look| look.outcomes()[1].limit() == 200_000)));
    assert_eq!(directory.asked(), 1);
    assert!(limiter.check(&bob).await.expect("memory decides").is_allowed());
    assert_eq!(directory.asked(), 2);
    let fresh = Limiter::new(
        memory(),
        [Rule::new("none", Quota::fixed_window(1, HOUR)), {
            Rule::new("user", MANY).tier_lookup(directory.tiers(ms(1)))
        }],
    );
    assert!(!fresh.check_n(&ada, 2).await.expect("memory decides").is_allowed());
    assert_eq!(directory.asked(), 2, "it is refused without");
}
