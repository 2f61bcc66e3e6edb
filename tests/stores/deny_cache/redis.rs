//! The cache that a Redis store has.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tollgate::store::{Ask, AskMode, Change, Check, RedisStoreBuilder, Settlement, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Quota, RedisStore, Source};

use super::rig::{MS, S};
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;
use crate::support::time::at;

const QUOTA: Quota = Quota::token_bucket(2, Duration::from_secs(30 * 86_400));

async fn store(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    connect(server, RedisStore::builder().clock(clock.clone())).await
}

async fn connect(server: &RedisServer, settings: RedisStoreBuilder) -> RedisStore {
    settings.timeout(Duration::from_secs(20)).connect(&server.url()).await.expect("the server was started")
}

async fn decide(store: &RedisStore, checks: &[Check]) -> Decision {
    store.decide(checks, Ask::default()).wait().await.expect("the server answers").decision
}

/// Takes all there is, and has the next request refused.
async fn refuse(store: &RedisStore, key: &str) {
    assert!(decide(store, &[check(key, QUOTA, 2)]).await.is_allowed());
    assert_eq!(source(store, key).await, (Source::Store, false));
}

async fn source(store: &RedisStore, key: &str) -> (Source, bool) {
    let decision = decide(store, &[check(key, QUOTA, 1)]).await;
    (decision.source(), decision.is_allowed())
}

#[tokio::test]
async fn a_probe_asks_the_server_whatever_is_remembered_and_is_learnt_from() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let store = store(&server, &clock).await;
    refuse(&store, "a").await;
    clock.set(at(900 * MS));
    assert_eq!(source(&store, "a").await, (Source::DenyCache, false));
    let before = server.scripts();
    let probe = store
        .decide(&[check("a", QUOTA, 1)], Ask::default().mode(AskMode::Probe))
        .wait()
        .await
        .expect("the server answers")
        .decision;
    assert_eq!((probe.source(), probe.is_allowed(), server.scripts()), (Source::Store, false, before + 1));
    clock.set(at(1_800 * MS));
    assert_eq!(source(&store, "a").await, (Source::DenyCache, false), "it was refused 900 ms ago");
}

/// Sends refused requests over 100 keys, 64 at once; returns how many calls the server has seen.
async fn flood(settings: RedisStoreBuilder, requests: usize) -> (u64, u64) {
    let server = RedisServer::start();
    let store = Arc::new(connect(&server, settings).await);
    for key in 0..100 {
        assert!(decide(&store, &[check(&key.to_string(), QUOTA, 2)]).await.is_allowed());
    }
    let before = server.scripts();
    let asked = futures::stream::iter(0..requests).map(|number| {
        let store = Arc::clone(&store);
        async move { assert!(!decide(&store, &[check(&(number % 100).to_string(), QUOTA, 1)]).await.is_allowed()) }
    });
    asked.buffer_unordered(64).collect::<Vec<()>>().await;
    (server.scripts() - before, store.denied_from_cache())
}

#[tokio::test]
async fn a_flood_of_refused_requests_hardly_reaches_the_server() {
    let clock = ManualClock::new();
    let (calls, answered) = flood(RedisStore::builder().clock(clock.clone()), 10_000).await;
    assert!(calls < 100, "{calls} calls for 10,000 refused requests");
    assert!(answered >= 9_800, "{answered} were answered");
}

#[tokio::test]
async fn without_the_cache_every_request_is_asked_about() {
    let settings = RedisStore::builder().without_deny_cache().batch_size(1);
    let (calls, answered) = flood(settings, 500).await;
    assert_eq!((calls, answered), (500, 0));
}

#[tokio::test]
async fn the_cap_and_the_clock_are_those_of_the_store() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let settings = RedisStore::builder().clock(clock.clone()).deny_cache_max_ttl(Duration::from_millis(50));
    for (cap, store) in [(S, store(&server, &clock).await), (50 * MS, connect(&server, settings).await)] {
        clock.set(at(0));
        refuse(&store, &cap.to_string()).await;
        clock.set(at(cap - 1));
        assert_eq!(source(&store, &cap.to_string()).await, (Source::DenyCache, false));
        clock.set(at(cap));
        assert_eq!(source(&store, &cap.to_string()).await, (Source::Store, false));
    }
}

#[tokio::test]
async fn what_is_given_back_through_this_store_is_seen_at_once() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let store = store(&server, &clock).await;
    refuse(&store, "reset").await;
    store.adjust(&counter("reset", QUOTA), Change::Reset).wait().await.unwrap();
    assert_eq!(source(&store, "reset").await, (Source::Store, true));

    refuse(&store, "refund").await;
    store.adjust(&counter("refund", QUOTA), Change::Refund(1)).wait().await.unwrap();
    assert_eq!(source(&store, "refund").await, (Source::Store, true));
    clock.set(at(100 * MS));
    assert_eq!(source(&store, "refund").await, (Source::Store, false));
    assert_eq!(source(&store, "refund").await, (Source::DenyCache, false));

    let taken = store.decide(&[check("settle", QUOTA, 2)], Ask::default()).wait().await.unwrap();
    assert_eq!(source(&store, "settle").await, (Source::Store, false));
    assert_eq!(source(&store, "settle").await, (Source::DenyCache, false));
    drop(store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(2))]));
    // The refund is sent in the background: until it arrives the store refuses, and is asked.
    let mut asked = 0;
    while source(&store, "settle").await != (Source::Store, true) {
        asked += 1;
        assert!(asked < 10_000, "the refund is not seen");
    }
}

#[tokio::test]
async fn what_is_given_back_elsewhere_is_seen_at_the_cap() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let (here, elsewhere) = (store(&server, &clock).await, store(&server, &clock).await);
    refuse(&here, "ada").await;
    elsewhere.adjust(&counter("ada", QUOTA), Change::Reset).wait().await.unwrap();
    clock.set(at(S - 1));
    assert_eq!(source(&here, "ada").await, (Source::DenyCache, false));
    assert_eq!(source(&elsewhere, "ada").await, (Source::Store, true));
    clock.set(at(S));
    assert_eq!(source(&here, "ada").await, (Source::Store, true));
}
