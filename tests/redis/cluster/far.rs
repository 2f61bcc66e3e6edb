//! A Cluster that is far away.

use std::time::Duration;

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::Value;

use super::rig::{Cluster, PATIENCE, take, wait_for};
use crate::support::proxy::Proxy;

/// On the way there and back.
const DELAY: Duration = Duration::from_millis(260);

#[tokio::test]
async fn a_cluster_far_away_is_connected_to_with_the_default_timeouts() {
    let cluster = Cluster::start();
    let ways: Vec<_> = cluster.nodes.iter().map(|node| Proxy::far(node.port(), DELAY)).collect();
    for (node, way) in cluster.nodes.iter().zip(&ways) {
        let (): () = node.ask(&["CONFIG", "SET", "cluster-announce-port", &way.port().to_string()]);
    }
    for node in &cluster.nodes {
        let names = |slots: &[Value], way: &Proxy| format!("{slots:?}").contains(&format!("int({})", way.port()));
        wait_for("the nodes name each other as they are reached", || {
            let slots: Vec<Value> = node.ask(&["CLUSTER", "SLOTS"]);
            ways.iter().all(|way| names(&slots, way))
        });
    }
    let store = RedisStore::builder().timeout(PATIENCE).connect_cluster([ways[0].url()]).await.expect("all answer");
    for place in 0..cluster.primaries().len() {
        drop(take(&store, &cluster.key_on(place), 1).await.expect("it is connected to"));
    }
}
