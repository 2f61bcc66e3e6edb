//! What was taken for a request whose decision came too late, on a Redis that stops for a while.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use tokio::time::sleep;
use tollgate::key::Lookup;
use tollgate::policy::Count;
use tollgate::store::{Ask, Check, Counter, DenyCache, LeaseStore, Store};
use tollgate::{Key, Policy, Quota, RateLimitLayer, RedisStore, Source, key};

use crate::rig::{ask, ms, per_user, told};
use crate::support::server::RedisServer;

const ONE: Quota = Quota::per_hour(1);
const LAYER: Duration = ms(50);
/// What is sent arrives within it, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server, and a store that has much longer than a layer, and than a pause.
async fn start() -> (RedisServer, RedisStore) {
    let redis = RedisServer::start();
    let settings = RedisStore::builder().timeout(Duration::from_secs(20));
    let store = settings.connect(&redis.url()).await.expect("the server was started");
    (redis, store)
}

fn look() -> [Check; 1] {
    let counter = Counter::new("user".try_into().expect("a valid name"), Key::hashed("header x-user", "ada"), ONE);
    [Check::new(counter, 0)]
}

/// Waits until the client has so many units left.
async fn until_left(store: &RedisStore, units: u64) {
    let start = Instant::now();
    loop {
        let looked = store.decide(&look(), Ask::default()).wait().await.expect("Redis answers");
        let left = looked.decision.outcomes()[0].remaining();
        if left == units {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{left} are left, not {units}");
        sleep(ms(5)).await;
    }
}

/// Serves a client who fails nothing while Redis stops, and again after it; it has all its units then.
async fn assert_given_back(redis: &RedisServer, store: &RedisStore, layer: &RateLimitLayer) {
    redis.pause();
    let locally = ask(layer, "ada").await;
    redis.resume();
    assert_eq!(told(&locally), (200, Source::Fallback));
    until_left(store, 1).await;
    assert_eq!(told(&ask(layer, "ada").await), (200, Source::Store));
    until_left(store, 1).await;
}

/// Stores around the store pass the deadline on.
#[tokio::test]
async fn what_a_late_decision_took_is_given_back_when_its_answer_comes() {
    let (redis, store) = start().await;
    let around: [Arc<dyn Store>; 4] = [
        Arc::new(store.clone()),
        Arc::new(LeaseStore::new(store.clone())),
        Arc::new(LeaseStore::builder(store.clone()).overdraft(10).build()),
        Arc::new(DenyCache::new(Arc::new(store.clone()))),
    ];
    for around in around {
        let layer = RateLimitLayer::new(around, per_user(ONE).count(Count::failures())).timeout(LAYER);
        assert_given_back(&redis, &store, &layer).await;
    }
}

#[tokio::test]
async fn the_rest_of_a_budget_is_a_deadline_too() {
    let (redis, store) = start().await;
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
async fn a_layer_in_a_hurry_neither_ends_the_connection_nor_fails_the_decisions_of_another() {
    let (redis, store) = start().await;
    let session = redis.session();
    let connections = || {
        let stats: String = session.ask(&["INFO", "stats"]);
        stats.lines().find(|line| line.starts_with("total_connections_received")).expect("it is there").to_owned()
    };
    let before = connections();
    redis.pause();
    let patient = tokio::spawn({
        let store = store.clone();
        async move { store.decide(&look(), Ask::default()).wait().await.map(drop) }
    });
    for _ in 0..3 {
        let hasty = store.decide(&look(), Ask::default().within(ms(10))).wait().await;
        assert!(hasty.expect_err("Redis is paused").is_timeout());
    }
    redis.resume();
    patient.await.expect("it does not panic").expect("it has all of its time");
    until_left(&store, 1).await;
    assert_eq!(connections(), before, "the store connected again");
}
