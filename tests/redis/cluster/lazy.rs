//! Stores on a Cluster that connect with their first decision.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tollgate::RedisStore;

use super::rig::{Cluster, PATIENCE, remaining, take};
use crate::support::server::RedisServer;

#[tokio::test]
async fn the_first_decisions_of_a_lazy_store_find_the_cluster() {
    let cluster = Cluster::start();
    let settings = RedisStore::builder().timeout(PATIENCE);
    let store = settings.lazy().connect_cluster([cluster.nodes[0].url()]).await.expect("the URL is one");
    let keys: Vec<_> = (0..3).flat_map(|place| cluster.keys_on(place, 5)).collect();
    let all: Vec<_> = keys.iter().map(|key| take(&store, key, 1)).collect();
    for (decided, key) in futures::future::join_all(all).await.into_iter().zip(&keys) {
        drop(decided.expect("nobody fails as the nodes are not known yet"));
        assert_eq!(remaining(&store, key).await, 49);
    }
}

#[tokio::test]
async fn a_lazy_store_whose_cluster_does_not_answer_fails_within_its_budget() {
    let server = RedisServer::start();
    server.pause();
    let store = RedisStore::builder().lazy().connect_cluster([server.url()]).await.expect("the URL is one");
    for _ in 0..10 {
        let start = std::time::Instant::now();
        take(&store, "ada", 1).await.expect_err("nobody answers");
        assert!(start.elapsed().as_millis() < 400, "{:?}", start.elapsed());
    }
    let nobody: [&str; 0] = [];
    assert!(RedisStore::builder().lazy().connect_cluster(nobody).await.expect_err("no node is known").is_invalid());
}

#[tokio::test]
async fn a_lazy_store_whose_cluster_was_away_fails_nobody_once_that_is_back_for_a_moment() {
    let (cluster, is_back) = (Cluster::start(), Arc::<AtomicBool>::default());
    let dials = Arc::clone(&is_back);
    let settings = RedisStore::builder().timeout(PATIENCE).dial(move |host, port| {
        let is_back = dials.load(Ordering::SeqCst);
        async move {
            if is_back { TcpStream::connect((host, port)).await } else { Err(io::ErrorKind::ConnectionRefused.into()) }
        }
    });
    let store = settings.lazy().connect_cluster([cluster.nodes[0].url()]).await.expect("the URL is one");
    take(&store, "ada", 1).await.expect_err("there is no connection");
    is_back.store(true, Ordering::SeqCst);
    // After a look that found nothing, the next one of a runtime begins 500 ms later.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let all: Vec<_> = (0..10).map(|_| take(&store, "ada", 1)).collect();
    for decided in futures::future::join_all(all).await {
        drop(decided.expect("it waits for the look"));
    }
}
