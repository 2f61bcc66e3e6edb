//! How long requests wait for what is looked up, and for the decision after it.

use std::future::pending;
use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep};
use tollgate::key::{self, Extracted, KeyExtractor, KeyLookup};
use tollgate::store::{MaybeFuture, Store};
use tollgate::test_util::FailingStore;
use tollgate::{Decision, Key, Limiter, OnFailure, Policy, RateLimitLayer, Rule, Source};
use tower::ServiceExt;

use super::rig::{Directory, MANY, by, layer, memory, ms, send, status, tiered, with_token};
use crate::rig::{Answer, Rig};
use crate::support::doubles::Bounded;

/// Timers count milliseconds, and round up.
const GRAIN: Duration = ms(2);

/// A store that decides so late; with a budget of its own it keeps deadlines, too.
fn late(by: Duration, own: Option<Duration>) -> impl Store {
    let store = FailingStore::new(Bounded(memory(), own));
    store.delay(by);
    store
}

/// An extractor that answers so late.
#[derive(Clone)]
struct Slow(Duration);

impl KeyExtractor for Slow {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        let late = self.0;
        MaybeFuture::pending(async move {
            sleep(late).await;
            Extracted::Key(Key::new("slow", "7"))
        })
    }
}

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

fn source(response: &Answer) -> Source {
    response.extensions().get::<Decision>().expect("a decision").source()
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
    // The future of an extractor of the application is waited for, and the status waits for lookups alike.
    takes(&layer(by(Slow(ms(15_000)))), ms(15_000)).await;
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
    takes(&layer(by((Slow(ms(20)), Slow(ms(30))))), ms(30)).await;
    let slow = directory.tiers(ms(30));
    let limiter = Limiter::new(memory(), ["a", "b"].map(|name| Rule::new(name, MANY).tier_lookup(slow.clone())));
    let decision = lasts(ms(30), limiter.check(&Key::new("user", "ada"))).await;
    assert!(decision.expect("memory decides").is_allowed());
    let response = takes(&layer(by(Slow(ms(40))).tier_lookup(directory.tiers(ms(70)))), ms(110)).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "200000");
}

#[tokio::test(start_paused = true)]
async fn a_look_a_lookup_and_a_decision_have_a_timeout_each() {
    for (late_by, own, time, expected) in [
        (90, None, 160, Source::Store),
        (110, None, 170, Source::Fallback),
        (90, Some(ms(100)), 160, Source::Store),
        (110, Some(ms(100)), 170, Source::Fallback),
    ] {
        let layer = RateLimitLayer::new(late(ms(late_by), own), tiered(Directory::default().tiers(ms(70))));
        assert_eq!(source(&takes(&layer, ms(time)).await), expected, "{late_by} ms, {own:?}");
    }
    let slow = |time| RateLimitLayer::new(late(time, None), Policy::new("all", MANY)).policy(by(Slow(ms(30))));
    assert_eq!(source(&takes(&slow(ms(60)), ms(150)).await), Source::Store);
    assert_eq!(source(&takes(&slow(ms(5_000)), ms(230)).await), Source::Fallback);
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
