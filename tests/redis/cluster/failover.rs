//! Primaries that go away, and passwords that change.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::RedisStore;
use tollgate::store::{Change, Settlement, Store};

use super::rig::{Cluster, NODE_TIMEOUT, remaining, take, time_to_decide, wait_for};
use crate::support::vault::Vault;

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
            drop(store.settle(receipt, &[Settlement::new(0, Change::Refund(3))]));
        }
        let waited = time_to_decide(&store, &own, &cluster.nodes[4]).await;
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
async fn every_node_is_logged_in_to_with_the_password_of_the_time() {
    let (cluster, vault) = (Cluster::start(), Vault::default());
    vault.change(&cluster.nodes, "first");
    let settings = vault.settings(RedisStore::builder().without_deny_cache());
    let store = settings.connect_cluster([cluster.nodes[0].url()]).await.expect("the password is right");
    let keys: Vec<_> = (0..3).map(|place| cluster.key_on(place)).collect();
    for round in 0..3 {
        vault.change(&cluster.nodes, &format!("password-{round}"));
        let start = Instant::now();
        for key in &keys {
            while let Err(error) = take(&store, key, 1).await {
                assert!(start.elapsed() < RETURN, "{error:#}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    cluster.nodes.iter().for_each(Vault::assert_used_rightly);
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
