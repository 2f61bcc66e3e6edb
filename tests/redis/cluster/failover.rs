//! Primaries that go away.

use std::time::{Duration, Instant};

use tollgate::store::{Change, Settlement, Store};

use super::rig::{Cluster, NODE_TIMEOUT, remaining, take, time_to_decide, wait_for};

const BUDGET: Duration = Duration::from_millis(300);
/// A budget, and what a busy machine adds to it.
const BOUND: Duration = Duration::from_millis(800);
/// Limiting goes on within this time of a replica's taking over.
const RETURN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_fails_its_own_slots_in_time_until_its_replica_takes_over() {
    let mut cluster = Cluster::start_with_replicas();
    let store = cluster.store(BUDGET).await;
    let (own, other) = (cluster.key_on(1), cluster.key_on(2));
    for key in [&own, &other] {
        drop(take(&store, key, 1).await.unwrap());
    }
    cluster.nodes[1].kill();
    let start = Instant::now();
    for _ in 0..10 {
        let asked = Instant::now();
        let error = take(&store, &own, 1).await.expect_err("its primary is dead");
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
        assert!(asked.elapsed() < BOUND, "{:?}", asked.elapsed());
        drop(take(&store, &other, 1).await.expect("its primary lives"));
    }
    assert!(start.elapsed() < NODE_TIMEOUT, "the replica had no time to take over: {:?}", start.elapsed());
    let waited = time_to_decide(&store, &own, &cluster.nodes[4]).await;
    assert!(waited < RETURN, "{waited:?}");
    drop(take(&store, &other, 1).await.expect("the Cluster is whole"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_primary_keeps_nobody_waiting_for_the_others() {
    let cluster = Cluster::start_with_replicas();
    let store = cluster.store(BUDGET).await;
    let (own, other) = (cluster.key_on(0), cluster.key_on(2));
    for key in [&own, &other] {
        drop(take(&store, key, 1).await.unwrap());
    }
    cluster.nodes[0].pause();
    let waiting = tokio::spawn({
        let (store, own) = (store.clone(), own.clone());
        async move { take(&store, &own, 1).await.map(drop) }
    });
    let (mut asked, mut longest) = (0, Duration::ZERO);
    while !waiting.is_finished() {
        let start = Instant::now();
        drop(take(&store, &other, 0).await.expect("its primary lives"));
        longest = longest.max(start.elapsed());
        asked += 1;
    }
    assert!(waiting.await.unwrap().expect_err("its primary is paused").is_timeout());
    assert!(asked > 5, "{asked} decisions, the longest took {longest:?}");
    let waited = time_to_decide(&store, &own, &cluster.nodes[3]).await;
    assert!(waited < RETURN, "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlements_that_a_killed_primary_was_not_sent_go_once_to_the_replica_that_takes_over() {
    let mut cluster = Cluster::start_with_replicas();
    let store = cluster.store(BUDGET).await;
    let (mut keys, mut receipts) = (cluster.keys_on(1, 21), Vec::new());
    let other = keys.remove(0);
    for key in &keys {
        receipts.push(take(&store, key, 6).await.expect("the Cluster is whole").receipt);
    }
    wait_for("the replica knows what was taken", || cluster.nodes[4].keys().len() == keys.len());
    cluster.nodes[1].kill();
    take(&store, &other, 1).await.expect_err("its primary is dead");
    for receipt in receipts {
        drop(store.settle(receipt, &[Settlement::new(0, Change::Refund(3))]));
    }
    let waited = time_to_decide(&store, &other, &cluster.nodes[4]).await;
    assert!(waited < RETURN, "{waited:?}");
    for key in &keys {
        let (start, mut left) = (Instant::now(), 0);
        while left < 47 && start.elapsed() < RETURN {
            left = remaining(&store, key).await;
        }
        assert_eq!(left, 47, "{key}");
    }
}

#[tokio::test]
async fn a_store_connects_while_a_primary_is_away() {
    let mut cluster = Cluster::start();
    let (own, other) = (cluster.key_on(0), cluster.key_on(2));
    cluster.nodes[0].kill();
    let urls = [cluster.nodes[0].url(), cluster.nodes[2].url()];
    let store = tollgate::RedisStore::builder().timeout(BUDGET).connect_cluster(urls).await.expect("a node is up");
    drop(take(&store, &other, 1).await.expect("its primary lives"));
    take(&store, &own, 1).await.expect_err("its primary is dead");
}
