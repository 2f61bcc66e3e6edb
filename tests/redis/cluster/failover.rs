//! Primaries that go away.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::RedisStore;
use tollgate::store::Change;

use super::rig::{Cluster, NODE_TIMEOUT};
use crate::stores::{PATIENCE, remaining, settle, take, wait_for};

const BUDGET: Duration = Duration::from_millis(300);
/// A budget, and what a busy machine adds to it.
const BOUND: Duration = Duration::from_millis(800);
/// Limiting goes on within this time of a replica's taking over.
const RETURN: Duration = Duration::from_secs(1);

/// A runtime that has stopped saw the failure first: the other one looks for the slots by itself.
#[test]
fn a_killed_primary_fails_its_own_slots_in_time_until_its_replica_takes_over_and_settlements_go_there_once() {
    let current_thread = || Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let (stopped, runtime): (Runtime, Runtime) = (current_thread(), current_thread());
    let mut cluster = Cluster::start_with_replicas();
    let store = runtime.block_on(cluster.store(BUDGET));
    let (mut keys, other) = (cluster.keys_on(1, 21), cluster.key_on(2));
    let own = keys.remove(0);
    drop(stopped.block_on(take(&store, &other, 1)).expect("the Cluster is whole"));
    let taken = keys.iter().map(|key| runtime.block_on(take(&store, key, 6)).expect("the Cluster is whole").receipt);
    let receipts: Vec<_> = taken.collect();
    wait_for("the replica knows what was taken", || cluster.nodes[4].keys().len() == keys.len());
    cluster.nodes[1].kill();
    stopped.block_on(take(&store, &own, 1)).expect_err("its primary is dead");
    runtime.block_on(async {
        let start = Instant::now();
        for _ in 0..10 {
            let asked = Instant::now();
            let error = take(&store, &own, 1).await.expect_err("its primary is dead");
            assert!(error.is_connection() || error.is_timeout(), "{error:#}");
            assert!(asked.elapsed() < BOUND, "{:?}", asked.elapsed());
            drop(take(&store, &other, 1).await.expect("its primary lives"));
        }
        assert!(start.elapsed() < NODE_TIMEOUT, "the replica had no time to take over: {:?}", start.elapsed());
        for receipt in receipts {
            drop(settle(&store, receipt, Change::Refund(3)));
        }
        let (replica, mut took_over) = (&cluster.nodes[4], None);
        while take(&store, &own, 1).await.is_err() {
            assert!(start.elapsed() < PATIENCE, "no decision is made");
            let is_primary = replica.ask::<String>(&["INFO", "replication"]).contains("role:master");
            took_over = took_over.or(is_primary.then(Instant::now));
        }
        let waited = took_over.map(|then| then.elapsed()).unwrap_or_default();
        assert!(waited < RETURN, "{waited:?}");
        for key in &keys {
            let (start, mut left) = (Instant::now(), 0);
            while left < 47 && start.elapsed() < RETURN {
                left = remaining(&store, key).await;
            }
            assert_eq!(left, 47, "{key}");
        }
    });
}

#[tokio::test]
async fn a_store_connects_while_a_primary_is_away() {
    let mut cluster = Cluster::start();
    let (own, other) = (cluster.key_on(0), cluster.key_on(2));
    cluster.nodes[0].kill();
    let urls = [cluster.nodes[0].url(), cluster.nodes[2].url()];
    let store = RedisStore::builder().timeout(BUDGET).connect_cluster(urls).await.expect("a node is up");
    drop(take(&store, &other, 1).await.expect("its primary lives"));
    take(&store, &own, 1).await.expect_err("its primary is dead");
}
