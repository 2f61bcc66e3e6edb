//! What was taken for a request whose decision came too late, on a Redis that stops for a while.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use tokio::time::{sleep, timeout};
use tollgate::key::Lookup;
use tollgate::policy::Count;
use tollgate::store::{Ask, Check, Counter, DenyCache, LeaseStore, Store};
use tollgate::{Key, Policy, Quota, RateLimitLayer, RedisStore, Source, key};

use crate::rig::{ask, ms, per_user, source};
use crate::support::server::RedisServer;

const ONE: Quota = Quota::per_hour(1);
/// Of the store: much longer than a layer's, and than the pause.
const OWN: Duration = Duration::from_secs(20);
const LAYER: Duration = ms(50);
/// What is sent arrives within it, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

async fn connected(redis: &RedisServer) -> RedisStore {
    RedisStore::builder().timeout(OWN).connect(&redis.url()).await.expect("the server was started")
}

fn check(cost: u64) -> Check {
    let counter = Counter::new("user".try_into().expect("a valid name"), Key::hashed("header x-user", "ada"), ONE);
    Check::new(counter, cost)
}

/// Units left to the client.
async fn left(store: &RedisStore) -> u64 {
    let looked = store.decide(&[check(0)], Ask::default()).wait().await.expect("Redis answers");
    looked.decision.outcomes()[0].remaining()
}

/// Whether the client has its unit back in time.
async fn comes_back(store: &RedisStore) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if left(store).await == 1 {
            return true;
        }
        sleep(ms(5)).await;
    }
    false
}

/// A layer that gives its store less time than that has, and counts what fails.
fn layer(store: impl Store) -> RateLimitLayer {
    RateLimitLayer::new(store, per_user(ONE).count(Count::failures())).timeout(LAYER)
}

/// Serves a client who fails nothing while Redis stops, and again after it; it has all its units then.
async fn assert_given_back(redis: &RedisServer, store: &RedisStore, layer: &RateLimitLayer) {
    redis.pause();
    let locally = ask(layer, "ada").await;
    redis.resume();
    assert_eq!((locally.status().as_u16(), source(&locally)), (200, Source::Fallback));
    assert!(comes_back(store).await, "the unit of a late decision is kept");
    let again = ask(layer, "ada").await;
    assert_eq!((again.status().as_u16(), source(&again)), (200, Source::Store));
    assert!(comes_back(store).await, "the unit of a success is kept");
}

/// Stores around the store pass the deadline on.
#[tokio::test]
async fn what_a_late_decision_took_is_given_back_when_its_answer_comes() {
    let redis = RedisServer::start();
    let store = connected(&redis).await;
    let overdrawn = LeaseStore::builder(store.clone()).overdraft(10).build();
    let cached = DenyCache::new(Arc::new(store.clone()));
    for layer in [layer(store.clone()), layer(LeaseStore::new(store.clone())), layer(overdrawn), layer(cached)] {
        assert_given_back(&redis, &store, &layer).await;
    }
}

#[tokio::test]
async fn the_rest_of_a_budget_is_a_deadline_too() {
    let redis = RedisServer::start();
    let store = connected(&redis).await;
    let later = |parts: &Parts| parts.headers.get("x-user").map(|user| Key::hashed("header x-user", user));
    let later = key::lookup(later, |user: Lookup| async move {
        sleep(ms(5)).await;
        Ok::<_, Infallible>(user.key().clone())
    });
    let policy = Policy::new("user", ONE).key(later).count(Count::failures());
    // As long as the store's, so that there is a deadline only as something is looked up.
    let own = RedisStore::builder().timeout(ms(100)).connect(&redis.url()).await.expect("the server was started");
    assert_given_back(&redis, &store, &RateLimitLayer::new(own, policy)).await;
}

#[tokio::test]
async fn a_dropped_request_keeps_its_unit() {
    let redis = RedisServer::start();
    let store = connected(&redis).await;
    let layer = RateLimitLayer::new(store.clone(), per_user(ONE).count(Count::failures()));
    redis.pause();
    timeout(LAYER, ask(&layer, "ada")).await.expect_err("Redis is paused");
    redis.resume();
    let start = Instant::now();
    while left(&store).await > 0 {
        assert!(start.elapsed() < PATIENCE, "it was never taken");
    }
    for _ in 0..50 {
        assert_eq!(left(&store).await, 0, "what was taken is kept");
        sleep(ms(2)).await;
    }
    assert_eq!(ask(&layer, "ada").await.status(), 429);
}

#[tokio::test]
async fn a_layer_in_a_hurry_neither_ends_the_connection_nor_fails_the_decisions_of_another() {
    let redis = RedisServer::start();
    let store = connected(&redis).await;
    let connections = || redis.ask::<String>(&["INFO", "stats"]);
    let connections =
        || connections().lines().find(|line| line.starts_with("total_connections_received")).map(str::to_owned);
    let before = connections();
    redis.pause();
    let patient = tokio::spawn({
        let store = store.clone();
        async move { store.decide(&[check(0)], Ask::default()).wait().await.map(drop) }
    });
    for _ in 0..3 {
        let hasty = store.decide(&[check(0)], Ask::default().within(ms(10))).wait().await;
        assert!(hasty.expect_err("Redis is paused").is_timeout());
    }
    redis.resume();
    patient.await.expect("it does not panic").expect("it has all of its time");
    left(&store).await;
    assert_eq!(connections().is_some(), before.is_some());
    let of = |line: Option<String>| line.and_then(|line| line.split(':').nth(1)?.trim().parse::<u64>().ok());
    // The client that asks for them connects each time.
    assert!(of(connections()) <= of(before).map(|count| count + 3), "the store connected again");
}
