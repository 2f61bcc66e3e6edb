//! What is queried is not at the mercy of clients.

use std::future::ready;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::advance;
use tollgate::key::{self, Extracted};
use tollgate::policy::AccessList;
use tollgate::{Key, Limiter, Policy, Quota, Rule};

use super::rig::{Directory, MANY, PRO, by, layer, limit, memory, ms, send, status, tiered, with_token};
use crate::rig::{HOUR, from, line};

#[tokio::test]
async fn made_up_keys_that_another_policy_refuses_are_not_looked_up() {
    let directory = Directory::default();
    let address = Policy::new("address", Quota::fixed_window(9, HOUR)).key(key::peer_ip());
    for policy in [tiered(directory.tiers(ms(0))), by(directory.accounts(ms(0)))] {
        let (layer, before) = (layer(address.clone()).policy(policy), directory.asked());
        for token in 0..50 {
            let expected = if token < 9 { 200 } else { 429 };
            assert_eq!(status(&layer, &format!("made-up-{token}")).await, expected, "{token}");
        }
        assert_eq!(directory.asked() - before, 9);
    }
}

#[tokio::test]
async fn requests_at_once_with_a_new_key_share_one_lookup() {
    let (tiers, accounts) = (Directory::default(), Directory::default());
    let layer = layer(tiered(tiers.tiers(ms(5)))).policy(by(accounts.accounts(ms(5))));
    for response in join_all((0..100).map(|_| send(&layer, with_token("ada")))).await {
        assert!(line(&response, "ratelimit-policy").contains(r#""token";q=200000"#), "{response:?}");
    }
    assert!(line(&send(&layer, with_token("ada")).await, "ratelimit").contains(r#""account";r=99899"#), "one key");
    assert_eq!((tiers.asked(), accounts.asked()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_more_lookups_are_under_way_than_may_be() {
    let directory = Directory::default();
    let tiers = layer(tiered(directory.tiers(ms(20)).in_flight(3)));
    let names: Vec<_> = (0..10).map(|n| format!("user-{n}")).collect();
    let limits = join_all(names.iter().map(|name| limit(&tiers, name))).await;
    assert_eq!(limits.iter().filter(|limit| **limit == 200_000).count(), 3);
    assert_eq!(limits.iter().filter(|limit| **limit == 100_000).count(), 7, "the others have the policy's own");
    assert_eq!(directory.asked(), 3);
    assert_eq!(limit(&tiers, "user-9").await, 200_000, "that is not remembered");
    // A key without room for its lookup counts with others of its kind.
    let directory = Directory::default();
    let two = Policy::new("account", Quota::fixed_window(2, HOUR)).key(directory.accounts(ms(20)).in_flight(1));
    let accounts = layer(two);
    let statuses = join_all(names[..4].iter().map(|name| status(&accounts, name))).await;
    assert_eq!((&statuses[..], directory.asked()), (&[200, 200, 200, 429][..], 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_found_is_remembered_for_a_minute_and_what_found_nothing_or_failed_for_a_moment() {
    let directory = Directory::default();
    let accounts = directory.accounts_by(|token| {
        ready(match token.text() {
            Some("broken") => Err("the directory is away"),
            Some("refused") => Ok(Extracted::Rejected(Box::default())),
            Some("known") => Ok(Extracted::Key(Key::new("account", "7"))),
            _ => Ok(Extracted::Missing),
        })
    });
    let tiers = directory.tiers_by(|user| {
        ready(match user.text() {
            Some("broken") => Err("the directory is away"),
            Some("known") => Ok(Some(PRO)),
            _ => Ok(None),
        })
    });
    let mut expected = 0;
    for (layer, token, remembered) in [
        (layer(by(accounts.clone())), "broken", 1_000),
        (layer(by(accounts.clone())), "nobody", 10_000),
        (layer(by(accounts.clone())), "refused", 10_000),
        (layer(by(accounts)), "known", 60_000),
        (layer(tiered(tiers.clone())), "broken", 1_000),
        (layer(tiered(tiers.clone())), "nobody", 10_000),
        (layer(tiered(tiers)), "known", 60_000),
    ] {
        for (passes, lookups) in [(0, 1), (0, 0), (remembered - 1, 0), (1, 1), (0, 0)] {
            advance(ms(passes)).await;
            send(&layer, with_token(token)).await;
            expected += lookups;
            assert_eq!(directory.asked(), expected, "{token} after {passes} ms more");
        }
    }
}

#[tokio::test]
async fn what_is_remembered_is_bounded_and_may_be_nothing() {
    let directory = Directory::default();
    let few = layer(tiered(directory.tiers(ms(0)).capacity(10)));
    for round in 0..2 {
        for user in 0..100 {
            let _ = limit(&few, &format!("{user}")).await;
        }
        assert!(directory.asked() >= 100 + round * 90, "at most 10 of 100 are remembered: {}", directory.asked());
    }
    let before = directory.asked();
    let none = layer(tiered(directory.tiers(ms(0)).ttl(Duration::ZERO)));
    assert_eq!([limit(&none, "ada").await, limit(&none, "ada").await], [200_000; 2]);
    assert_eq!(directory.asked(), before + 2);
    // Without a key, or with one on a list, nothing is looked up.
    let listed = layer(tiered(directory.tiers(ms(0))).allow(AccessList::default().key("ada")));
    assert_eq!(send(&listed, with_token("ada")).await.headers().len(), 0);
    assert_eq!(send(&listed, from("192.0.2.7")).await.status(), 200);
    assert_eq!(directory.asked(), before + 2);
}

#[tokio::test]
async fn a_limiter_shields_what_it_looks_up_too() {
    let directory = Directory::default();
    let rules = || {
        let all = Rule::new("all", Quota::fixed_window(1, HOUR));
        [all, Rule::new("user", MANY).tier_lookup(directory.tiers(ms(1)))]
    };
    let (ada, limiter) = (Key::new("user", "ada"), Limiter::new(memory(), rules()));
    let both = join_all([limiter.peek(&ada), limiter.peek(&ada)]).await;
    assert!(both.iter().all(|look| look.as_ref().is_ok_and(|look| look.outcomes()[1].limit() == 200_000)));
    assert_eq!(directory.asked(), 1);
    let fresh = Limiter::new(memory(), rules());
    assert!(!fresh.check_n(&ada, 2).await.expect("memory decides").is_allowed());
    assert_eq!(directory.asked(), 1, "it is refused without");
}
