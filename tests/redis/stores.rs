//! Stores on a server, and what is asked of them.

use std::time::{Duration, Instant};

use tollgate::store::{Ask, Store, StoreDecision};
use tollgate::{Decision, Error, Quota, RedisStore};

use crate::support::checks::check;
use crate::support::server::RedisServer;

/// Hardly a unit returns during a test.
pub(super) const FIFTY: Quota = Quota::token_bucket(50, Duration::from_secs(30 * 86_400));

/// A budget that a busy machine does not use up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn patient_store(server: &RedisServer) -> RedisStore {
    store_with_budget(server, PATIENCE).await
}

pub(super) async fn store_with_budget(server: &RedisServer, budget: Duration) -> RedisStore {
    RedisStore::builder().timeout(budget).connect(&server.url()).await.expect("the server was started")
}

pub(super) async fn take(store: &RedisStore, key: &str, cost: u64) -> Result<StoreDecision, Error> {
    store.decide(&[check(key, FIFTY, cost)], Ask::default()).wait().await
}

/// What remains of [`FIFTY`].
pub(super) async fn remaining(store: &RedisStore, key: &str) -> u64 {
    first_remaining(&take(store, key, 0).await.expect("the server is up").decision)
}

pub(super) fn first_remaining(decision: &Decision) -> u64 {
    decision.outcomes()[0].remaining()
}

/// Asks until a decision is made; returns how long that took. Fails after five seconds.
pub(super) async fn time_to_decide(store: &RedisStore, key: &str) -> Duration {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if take(store, key, 1).await.is_ok() {
            return start.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no decision was made in {:?}", start.elapsed());
}
