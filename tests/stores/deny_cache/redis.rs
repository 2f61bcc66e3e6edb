//! The cache that a Redis store has.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tollgate::store::{Ask, Change, RedisStoreBuilder, Settlement, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate::{Quota, RedisStore, Source};

use super::rig::{MS, S};
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;
use crate::support::time::at;

const QUOTA: Quota = Quota::token_bucket(2, Duration::from_secs(30 * 86_400));

async fn connect(server: &RedisServer, settings: RedisStoreBuilder) -> RedisStore {
    settings.timeout(Duration::from_secs(20)).connect(&server.url()).await.expect("the server was started")
}

async fn decide(store: &RedisStore, key: &str, cost: u64) -> StoreDecision {
    store.decide(&[check(key, QUOTA, cost)], Ask::default()).wait().await.expect("the server answers")
}

async fn source(store: &RedisStore, key: &str) -> (Source, bool) {
    let decision = decide(store, key, 1).await.decision;
    (decision.source(), decision.is_allowed())
}

/// Takes all there is, and has the next requests refused.
async fn refuse(store: &RedisStore, key: &str) -> StoreDecision {
    let taken = decide(store, key, 2).await;
    assert_eq!(source(store, key).await, (Source::Store, false));
    assert_eq!(source(store, key).await, (Source::DenyCache, false));
    taken
}

#[tokio::test]
async fn a_flood_of_refused_requests_hardly_reaches_the_server_unless_the_cache_is_left_out() {
    let with = || RedisStore::builder().clock(ManualClock::new());
    for (settings, requests, most) in [(with(), 10_000, 200), (with().without_deny_cache().batch_size(1), 500, 500)] {
        let server = RedisServer::start();
        let store = Arc::new(connect(&server, settings).await);
        for key in 0..100 {
            let _ = decide(&store, &key.to_string(), 2).await;
        }
        let before = server.scripts();
        // Over 100 keys, 64 at once.
        let asked = futures::stream::iter(0..requests).map(|number| {
            let store = Arc::clone(&store);
            async move { assert!(!source(&store, &(number % 100).to_string()).await.1) }
        });
        asked.buffer_unordered(64).collect::<Vec<()>>().await;
        let (calls, cached) = (server.scripts() - before, store.denied_from_cache());
        assert!(calls <= most && cached + most >= requests, "{calls} calls, {cached} were cached of {requests}");
        assert!(most < requests || (calls, cached) == (requests, 0), "{calls} calls, {cached} were cached");
    }
}

#[tokio::test]
async fn the_cap_and_the_clock_are_those_of_the_store() {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let settings = || RedisStore::builder().clock(clock.clone());
    let short = settings().deny_cache_max_ttl(Duration::from_millis(50));
    for (cap, settings) in [(S, settings()), (50 * MS, short)] {
        let (store, key) = (connect(&server, settings).await, cap.to_string());
        clock.set(at(0));
        let _ = refuse(&store, &key).await;
        clock.set(at(cap - 1));
        assert_eq!(source(&store, &key).await, (Source::DenyCache, false));
        clock.set(at(cap));
        assert_eq!(source(&store, &key).await, (Source::Store, false));
    }
}

#[tokio::test]
async fn what_is_given_back_through_this_store_is_seen_at_once() {
    let server = RedisServer::start();
    let store = connect(&server, RedisStore::builder().clock(ManualClock::new())).await;
    for change in [Change::Reset, Change::Refund(1)] {
        let key = format!("{change:?}");
        let _ = refuse(&store, &key).await;
        store.adjust(&counter(&key, QUOTA), change).wait().await.expect("the server answers");
        assert_eq!(source(&store, &key).await, (Source::Store, true), "{key}");
    }
    let taken = refuse(&store, "settle").await.receipt;
    drop(store.settle(taken, &[Settlement::new(0, Change::Refund(2))]));
    // The refund is sent in the background: until it arrives the store refuses, and is asked.
    let mut asked = 0;
    while source(&store, "settle").await != (Source::Store, true) {
        asked += 1;
        assert!(asked < 10_000, "the refund is not seen");
    }
}
