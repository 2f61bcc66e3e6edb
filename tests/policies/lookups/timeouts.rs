//! How long requests wait for what is looked up, and for the decision after it.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::key::{self, Extracted, KeyLookup};
use tollgate::test_util::FailingStore;
use tollgate::{Decision, Key, Limiter, OnFailure, Policy, RateLimitLayer, Rule, Source};
use tower::ServiceExt;

use super::rig::{Directory, MANY, by, layer, memory, ms, send, status, tiered, with_token};
use crate::rig::{Answer, Rig};

/// Timers count milliseconds, and round up.
const GRAIN: Duration = ms(2);

/// Checks how long something takes; returns what it makes.
async fn lasts<T>(time: Duration, future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let made = future.await;
    let waited = start.elapsed();
    assert!((time..=time + GRAIN).contains(&waited), "{waited:?} of {time:?}");
    made
}

async fn takes(layer: &RateLimitLayer, time: Duration) -> Answer {
    lasts(time, send(layer, with_token("ada"))).await
}

/// Looks a key up in a directory that hangs.
fn hanging() -> KeyLookup {
    key::lookup(key::header("x-token"), |_| pending::<Result<Key, &str>>())
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_hangs_is_waited_for_until_its_own_timeout() {
    for budget in [ms(10), ms(100), ms(5_000)] {
        let waits = |key: KeyLookup| layer(by(key)).timeout(budget);
        assert_eq!(takes(&waits(hanging()), ms(1_000)).await.status(), 200);
        assert_eq!(takes(&waits(hanging().timeout(ms(300))), ms(300)).await.status(), 200);
        let tiers = Directory::default().tiers(ms(60_000)).timeout(ms(300));
        let tiered = layer(tiered(tiers)).timeout(budget);
        let response = takes(&tiered, ms(300)).await;
        assert_eq!(response.headers()["x-ratelimit-limit"], "100000", "the policy's own");
        assert_eq!(takes(&tiered, ms(0)).await.status(), 200, "it is not waited for again at once");
    }
    // The status waits for lookups alike.
    let policies = [by(hanging()), tiered(Directory::default().tiers(ms(9_000)))];
    let status = RateLimitLayer::composite(memory()).policies(policies).live().status_service_for(|_| true);
    let response = lasts(ms(1_000), status.oneshot(with_token("ada"))).await.expect("a response");
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn lookups_are_side_by_side_and_a_key_is_followed_by_its_quota() {
    let directory = Directory::default();
    let policies = (0..10).map(|n| {
        let name = format!("p{n}");
        Policy::new(&name, MANY).key(key::header("x-token")).tier_lookup(directory.tiers(ms(30)))
    });
    takes(&RateLimitLayer::composite(memory()).policies(policies), ms(30)).await;
    assert_eq!(directory.asked(), 10);
    takes(&layer(by((directory.accounts(ms(20)), directory.accounts(ms(30))))), ms(30)).await;
    let slow = directory.tiers(ms(30));
    let limiter = Limiter::new(memory(), ["a", "b"].map(|name| Rule::new(name, MANY).tier_lookup(slow.clone())));
    let decision = lasts(ms(30), limiter.check(&Key::new("user", "ada"))).await;
    assert!(decision.expect("memory decides").is_allowed());
    let response = takes(&layer(by(directory.accounts(ms(40))).tier_lookup(directory.tiers(ms(70)))), ms(110)).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "200000");
}

#[tokio::test(start_paused = true)]
async fn a_look_a_lookup_and_a_decision_have_a_timeout_each() {
    let late = |time, policy: Policy| {
        let store = FailingStore::new(memory());
        store.delay(time);
        RateLimitLayer::new(store, policy)
    };
    let all = || Policy::new("all", MANY);
    let tiers = || tiered(Directory::default().tiers(ms(70)));
    let accounts = || by(Directory::default().accounts(ms(30)));
    for (layer, time, expected) in [
        (late(ms(90), tiers()), 160, Source::Store),
        (late(ms(110), tiers()), 170, Source::Fallback),
        (late(ms(60), all()).policy(accounts()), 150, Source::Store),
        (late(ms(5_000), all()).policy(accounts()), 230, Source::Fallback),
    ] {
        let response = takes(&layer, ms(time)).await;
        assert_eq!(response.extensions().get::<Decision>().expect("a decision").source(), expected, "{time} ms");
    }
}

fn rejected() -> Extracted {
    let unknown = http::Response::builder().status(401).body("who are you?".into()).expect("a response");
    Extracted::Rejected(Box::new(unknown))
}

#[tokio::test(start_paused = true)]
async fn the_first_lookup_that_refuses_ends_the_wait_for_the_others_and_makes_none_late() {
    let refuses = Directory::default().accounts_by(|token| async move {
        sleep(ms(15)).await;
        Ok(if token.text() == Some("bad") { rejected() } else { Extracted::Key(Key::new("account", "7")) })
    });
    let hangs = Policy::new("hangs", MANY).key(hanging().timeout(ms(15_000)));
    let layer = Rig::new().layer([hangs, by(refuses.clone())]).on_failure(OnFailure::Deny);
    assert_eq!(lasts(ms(15), status(&layer, "bad")).await, 401);
    let late = Policy::new("tiers", MANY).key(key::peer_ip()).tier_lookup(Directory::default().tiers(ms(40)));
    let layer = RateLimitLayer::composite(memory()).policies([by(refuses), late]);
    assert_eq!(status(&layer, "bad").await, 401);
    let response = send(&layer, with_token("good")).await;
    let policies = response.headers()["ratelimit-policy"].to_str().expect("text");
    assert!(policies.contains("q=200000"), "25 ms later the tier is found: {policies}");
}
