//! Stores on a Cluster that connect with their first decision.

use tollgate::RedisStore;

use crate::rig::{Cluster, PATIENCE, remaining, take};
use crate::support::server::RedisServer;

#[tokio::test]
async fn the_first_decisions_of_a_lazy_store_find_the_cluster() {
    let cluster = Cluster::start();
    let settings = RedisStore::builder().budget(PATIENCE);
    let store = settings.connect_cluster_lazy([cluster.nodes[0].url()]).expect("the URL is one");
    let keys: Vec<_> = (0..3).flat_map(|place| cluster.keys_on(place, 5)).collect();
    let all: Vec<_> = keys.iter().map(|key| take(&store, key, 1)).collect();
    for (decided, key) in futures::future::join_all(all).await.into_iter().zip(&keys) {
        decided.expect("nobody fails as the nodes are not known yet");
        assert_eq!(remaining(&store, key).await, 49);
    }
}

#[tokio::test]
async fn a_lazy_store_whose_cluster_does_not_answer_fails_within_its_budget() {
    let server = RedisServer::start();
    server.pause();
    let store = RedisStore::builder().connect_cluster_lazy([server.url()]).expect("the URL is one");
    for _ in 0..10 {
        let start = std::time::Instant::now();
        take(&store, "ada", 1).await.expect_err("nobody answers");
        assert!(start.elapsed().as_millis() < 400, "{:?}", start.elapsed());
    }
    let nobody: [&str; 0] = [];
    assert!(RedisStore::builder().connect_cluster_lazy(nobody).expect_err("no node is known").is_invalid());
}
