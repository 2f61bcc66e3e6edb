//! How long requests wait for what is looked up, and for the decision after it.

use std::future::pending;
use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep};
use tollgate::key::{self, Extracted, KeyExtractor, KeyLookup};
use tollgate::store::{MaybeFuture, Store};
use tollgate::test_util::FailingStore;
use tollgate::{Decision, Key, Limiter, Policy, RateLimitLayer, Rule, Source};

use super::rig::{Answered, Directory, MANY, by, memory, ms, send, tiered, with_token};
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

/// Checks how long a request takes; returns its response.
async fn takes(layer: &RateLimitLayer, time: Duration) -> Answered {
    let start = Instant::now();
    let response = send(layer, with_token("ada")).await;
    let waited = start.elapsed();
    assert!((time..=time + GRAIN).contains(&waited), "{waited:?} of {time:?}");
    response
}

fn source(response: &Answered) -> Source {
    response.extensions().get::<Decision>().expect("a decision").source()
}

/// Looks a key up in a directory that hangs.
fn hanging() -> KeyLookup {
    key::lookup(key::header("x-token"), |_| pending::<Result<Key, &str>>())
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_hangs_is_waited_for_until_its_own_timeout() {
    for budget in [ms(10), ms(100), ms(5_000)] {
        let waits = |key: KeyLookup| RateLimitLayer::new(memory(), by(key)).timeout(budget);
        assert_eq!(takes(&waits(hanging()), ms(1_000)).await.status(), 200);
        assert_eq!(takes(&waits(hanging().timeout(ms(300))), ms(300)).await.status(), 200);
        let tiers = Directory::default().tiers(ms(60_000)).timeout(ms(300));
        let response = takes(&RateLimitLayer::new(memory(), tiered(tiers)).timeout(budget), ms(300)).await;
        assert_eq!(response.headers()["x-ratelimit-limit"], "100000", "the policy's own");
    }
}

#[tokio::test(start_paused = true)]
async fn lookups_are_side_by_side() {
    let directory = Directory::default();
    let policies = (0..10).map(|n| {
        let name = format!("p{n}");
        Policy::new(&name, MANY).key(key::header("x-token")).tier_lookup(directory.tiers(ms(30)))
    });
    takes(&RateLimitLayer::composite(memory()).policies(policies), ms(30)).await;
    assert_eq!(directory.asked(), 10);
    let joined = (Slow(ms(20)), Slow(ms(30)));
    takes(&RateLimitLayer::new(memory(), by(joined)), ms(30)).await;
    let slow = directory.tiers(ms(30));
    let limiter = Limiter::new(memory(), ["a", "b"].map(|name| Rule::new(name, MANY).tier_lookup(slow.clone())));
    let start = Instant::now();
    assert!(limiter.check(&Key::new("user", "ada")).await.expect("memory decides").is_allowed());
    assert!(start.elapsed() <= ms(30) + GRAIN, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_followed_by_its_quota() {
    let directory = Directory::default();
    let policy = by(Slow(ms(40))).tier_lookup(directory.tiers(ms(70)));
    let response = takes(&RateLimitLayer::new(memory(), policy), ms(110)).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "200000");
}

#[tokio::test(start_paused = true)]
async fn a_decision_has_all_of_its_time_after_a_lookup() {
    let directory = Directory::default();
    let layer = |by, own| RateLimitLayer::new(late(by, own), tiered(directory.tiers(ms(70))));
    assert_eq!(source(&takes(&layer(ms(90), None), ms(160)).await), Source::Store);
    assert_eq!(source(&takes(&layer(ms(110), None), ms(170)).await), Source::Fallback);
    assert_eq!(source(&takes(&layer(ms(90), Some(ms(100))), ms(160)).await), Source::Store);
    assert_eq!(source(&takes(&layer(ms(110), Some(ms(100))), ms(170)).await), Source::Fallback);
}

#[tokio::test(start_paused = true)]
async fn a_look_a_lookup_and_a_decision_have_a_timeout_each() {
    let all = Policy::new("all", MANY);
    let slow = |time| RateLimitLayer::new(late(time, None), all.clone()).policy(by(Slow(ms(30))));
    assert_eq!(source(&takes(&slow(ms(60)), ms(150)).await), Source::Store);
    assert_eq!(source(&takes(&slow(ms(5_000)), ms(230)).await), Source::Fallback);
}

#[tokio::test(start_paused = true)]
async fn the_future_of_an_extractor_is_waited_for() {
    takes(&RateLimitLayer::new(memory(), by(Slow(ms(1_000_000)))), ms(1_000_000)).await;
}

#[tokio::test(start_paused = true)]
async fn the_status_waits_for_lookups_alike() {
    let policies = [by(hanging()), tiered(Directory::default().tiers(ms(9_000)))];
    let layer = RateLimitLayer::composite(memory()).policies(policies);
    let start = Instant::now();
    let response = tower::ServiceExt::oneshot(layer.clone().live().status_service_for(|_| true), with_token("ada"))
        .await
        .expect("a response");
    assert_eq!(response.status(), 200);
    let waited = start.elapsed();
    assert!((ms(1_000)..=ms(1_000) + GRAIN).contains(&waited), "{waited:?}");
}
