//! A store on a Cluster that connects with its first decision.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tollgate::RedisStore;

use super::rig::{Cluster, remaining, take};

#[tokio::test]
async fn a_lazy_store_fails_in_time_while_its_cluster_is_away_and_then_its_first_decisions_find_all_of_it() {
    let (cluster, is_back) = (Cluster::start(), Arc::<AtomicBool>::default());
    let dials = Arc::clone(&is_back);
    let settings = RedisStore::builder().timeout(Duration::from_secs(1)).dial(move |host, port| {
        let is_back = dials.load(Ordering::SeqCst);
        async move {
            if is_back { TcpStream::connect((host, port)).await } else { Err(io::ErrorKind::ConnectionRefused.into()) }
        }
    });
    let store = settings.lazy().connect_cluster([cluster.nodes[0].url()]).await.expect("the URL is one");
    let start = Instant::now();
    take(&store, "ada", 1).await.expect_err("there is no connection");
    assert!(start.elapsed() < Duration::from_millis(1_400), "{:?}", start.elapsed());
    is_back.store(true, Ordering::SeqCst);
    // After a look that found nothing, the next one of a runtime begins 500 ms later.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let keys: Vec<_> = (0..3).flat_map(|place| cluster.keys_on(place, 5)).collect();
    let all: Vec<_> = keys.iter().map(|key| take(&store, key, 1)).collect();
    for (decided, key) in futures::future::join_all(all).await.into_iter().zip(&keys) {
        drop(decided.expect("nobody fails as the nodes are not known yet"));
        assert_eq!(remaining(&store, key).await, 49);
    }
}
