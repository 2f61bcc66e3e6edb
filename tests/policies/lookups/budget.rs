//! One budget over all that a decision waits for.

use std::future::pending;
use std::time::Duration;

use http::request::Parts;
use tokio::time::{Instant, sleep};
use tollgate::key::{self, Extracted, KeyExtractor};
use tollgate::store::{MaybeFuture, Store};
use tollgate::test_util::FailingStore;
use tollgate::{Decision, Key, Limiter, Policy, RateLimitLayer, Rule, Source};

use super::rig::{Answered, Directory, MANY, by, memory, ms, send, tiered, told, with_token};
use crate::support::doubles::Bounded;

/// Timers count milliseconds, and round up.
const GRAIN: Duration = ms(2);

/// A store that decides so late; with a budget of its own it keeps deadlines, too.
fn late(by: Duration, own: Option<Duration>) -> impl Store {
    let store = FailingStore::new(Bounded(memory(), own));
    store.delay(by);
    store
}

/// An extractor that hangs, or answers so late.
#[derive(Clone)]
struct Slow(Option<Duration>);

impl KeyExtractor for Slow {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        let late = self.0;
        MaybeFuture::pending(async move {
            match late {
                Some(late) => sleep(late).await,
                None => pending().await,
            }
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

#[tokio::test(start_paused = true)]
async fn a_key_that_hangs_is_waited_for_half_of_the_budget() {
    let hangs = || RateLimitLayer::new(memory(), by(Slow(None)));
    assert_eq!(takes(&hangs(), ms(50)).await.status(), 200);
    assert_eq!(takes(&hangs().timeout(ms(400)), ms(200)).await.status(), 200);
    let looked_up = by(key::lookup(key::header("x-token"), |_| pending::<Result<Key, &str>>()));
    assert_eq!(takes(&RateLimitLayer::new(memory(), looked_up), ms(50)).await.status(), 200);
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
    let joined = (Slow(Some(ms(20))), Slow(Some(ms(30))));
    takes(&RateLimitLayer::new(memory(), by(joined)), ms(30)).await;
    let slow = directory.tiers(ms(30));
    let limiter = Limiter::new(memory(), ["a", "b"].map(|name| Rule::new(name, MANY).tier_lookup(slow.clone())));
    let start = Instant::now();
    assert!(limiter.check(&Key::new("user", "ada")).await.expect("memory decides").is_allowed());
    assert!(start.elapsed() <= ms(30) + GRAIN, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_key_and_then_its_quota_share_the_time() {
    let directory = Directory::default();
    let policy = by(Slow(Some(ms(40)))).tier_lookup(directory.tiers(ms(40)));
    let response = takes(&RateLimitLayer::new(memory(), policy), ms(50)).await;
    assert_eq!(response.headers()["x-ratelimit-limit"], "100000", "without the quota, but with the key");
}

#[tokio::test(start_paused = true)]
async fn the_store_has_what_the_lookups_leave() {
    let directory = Directory::default();
    let layer = |by, own| RateLimitLayer::new(late(by, own), tiered(directory.tiers(ms(30))));
    assert_eq!(source(&takes(&layer(ms(60), None), ms(90)).await), Source::Store);
    assert_eq!(source(&takes(&layer(ms(80), None), ms(100)).await), Source::Fallback);
    let own = layer(ms(80), Some(ms(100)));
    assert_eq!(source(&takes(&own, ms(100)).await), Source::Fallback, "a store with a budget of its own, too");
    assert_eq!(source(&takes(&own, ms(80)).await), Source::Store, "without lookups it has all of it");
}

#[tokio::test(start_paused = true)]
async fn a_look_a_lookup_and_a_decision_are_within_the_budget() {
    let all = Policy::new("all", MANY);
    let slow = |time| RateLimitLayer::new(late(time, None), all.clone()).policy(by(Slow(None)));
    takes(&slow(ms(20)), ms(80)).await;
    assert_eq!(source(&takes(&slow(ms(60)), ms(100)).await), Source::Fallback);
    assert_eq!(source(&takes(&slow(ms(5_000)), ms(100)).await), Source::Fallback);
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_end_waits_for_the_lookup() {
    let layer = RateLimitLayer::new(memory(), by(Slow(Some(Duration::from_secs(1_000))))).timeout(Duration::MAX);
    takes(&layer, Duration::from_secs(1_000)).await;
}

#[tokio::test(start_paused = true)]
async fn the_status_is_told_within_the_budget_too() {
    let policies = [by(Slow(None)), tiered(Directory::default().tiers(ms(9_000)))];
    let layer = RateLimitLayer::composite(memory()).policies(policies);
    let start = Instant::now();
    let response = tower::ServiceExt::oneshot(layer.clone().live().status_service_for(|_| true), with_token("ada"))
        .await
        .expect("a response");
    assert_eq!(response.status(), 200);
    assert!(start.elapsed() <= ms(50) + GRAIN, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_answers_in_time_counts() {
    let layer = RateLimitLayer::new(memory(), tiered(Directory::default().tiers(ms(49))));
    assert_eq!(told(&layer, "ada", "x-ratelimit-limit").await, "200000");
}
