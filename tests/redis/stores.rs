//! Stores on a server, and what is asked of them.

use std::thread;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::store::StoreDecision;
use tollgate::store::{Ask, Change, ChangeResult, Check, Receipt, RedisStoreBuilder, Settlement, Settling, Store};
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Error, Outcome, Quota, RedisStore};

use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;

/// Hardly a unit returns during a test.
pub(super) const MONTH: Duration = Duration::from_secs(30 * 86_400);
pub(super) const FIFTY: Quota = Quota::token_bucket(50, MONTH);

/// A budget that a busy machine does not use up.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What takes milliseconds ends within this time on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Settings of a store that keeps no refusals, with time enough.
pub(super) fn settings() -> RedisStoreBuilder {
    RedisStore::builder().without_deny_cache().timeout(PATIENCE)
}

pub(super) async fn patient_store(server: &RedisServer) -> RedisStore {
    connect(RedisStore::builder().timeout(PATIENCE), server).await
}

pub(super) async fn connect(settings: RedisStoreBuilder, server: &RedisServer) -> RedisStore {
    settings.connect(&server.url()).await.expect("the server was started")
}

/// A server, and a store on it by a clock that tests set.
pub(super) async fn on_clock() -> (RedisServer, ManualClock, RedisStore) {
    let (server, clock) = (RedisServer::start(), ManualClock::new());
    let store = connect(settings().clock(clock.clone()), &server).await;
    (server, clock, store)
}

pub(super) async fn decide(store: &impl Store, checks: &[Check]) -> StoreDecision {
    store.decide(checks, Ask::default()).wait().await.expect("the server is up")
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

/// What remains of each check.
pub(super) fn all_remaining(decision: &Decision) -> Vec<u64> {
    decision.outcomes().iter().map(Outcome::remaining).collect()
}

/// Has tasks ask for the same, all at once and each so often; returns how many requests are admitted.
pub(super) async fn admitted(stores: &[RedisStore], checks: &[Check], tasks: usize, each: usize) -> usize {
    let ask = |task: usize| {
        let (store, checks) = (stores[task % stores.len()].clone(), checks.to_vec());
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..each {
                admitted += usize::from(decide(&store, &checks).await.decision.is_allowed());
            }
            admitted
        })
    };
    let tasks: Vec<_> = (0..tasks).map(ask).collect();
    join_all(tasks).await.into_iter().map(|task| task.expect("it ends")).sum()
}

/// Changes what the first check took.
pub(super) fn settle(store: &impl Store, receipt: Receipt, change: Change) -> Settling {
    store.settle(receipt, &[Settlement::new(0, change)])
}

pub(super) async fn adjust(store: &impl Store, key: &str, quota: Quota, change: Change) -> ChangeResult {
    store.adjust(&counter(key, quota), change).wait().await.expect("the server is up")
}

/// Asks until a decision is made; returns how long that took.
pub(super) async fn time_to_decide(store: &RedisStore, key: &str) -> Duration {
    let start = Instant::now();
    while let Err(error) = take(store, key, 1).await {
        assert!(start.elapsed() < LIMIT, "{error:#}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

/// Ends the connections of all clients.
pub(super) fn cut(server: &RedisServer) {
    let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
}

#[track_caller]
pub(super) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "waited for {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
