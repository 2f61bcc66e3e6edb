//! Decisions over keys of one slot.

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::{FromRedisValue, cmd};
use tollgate::store::Change;

use super::rig::{Cluster, check_of, quota};
use crate::stores::{FIFTY, PATIENCE, adjust, admitted, all_remaining, decide, remaining, settle, take};
use crate::support::checks::check;
use crate::support::server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_are_counted_on_all_primaries_and_each_exactly() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let others = async {
        for number in 0..60 {
            drop(take(&store, &format!("key {number}"), 1).await.unwrap());
        }
    };
    let hot = [check("hot", quota(500), 1)];
    let (admitted, ()) = tokio::join!(admitted(std::slice::from_ref(&store), &hot, 8, 160), others);
    assert_eq!(admitted, 500, "of 1,280 requests");
    for primary in cluster.primaries() {
        let keys: u64 = primary.ask(&["DBSIZE"]);
        assert!(keys > 5, "{keys} keys on {}", primary.port());
        primary.assert_every_key_expires();
    }
}

#[tokio::test]
async fn policies_over_one_key_are_one_call_and_settlements_and_changes_find_its_primary() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    for (place, primary) in cluster.primaries().iter().enumerate() {
        let key = cluster.key_on(place);
        let checks = [check_of("wide", &key, quota(9)), check_of("narrow", &key, quota(2))];
        for left in [[8, 1], [7, 0], [7, 0]] {
            let before = primary.scripts();
            assert_eq!(all_remaining(&decide(&store, &checks).await.decision), left);
            assert_eq!(primary.scripts() - before, 1, "one call");
        }
        let taken = take(&store, &key, 10).await.unwrap();
        drop(settle(&store, taken.receipt, Change::Refund(4)));
        assert_eq!(remaining(&store, &key).await, 44);
        adjust(&store, &key, FIFTY, Change::Charge(40)).await;
        assert_eq!(remaining(&store, &key).await, 4);
        adjust(&store, &key, FIFTY, Change::Reset).await;
        assert_eq!(remaining(&store, &key).await, 50);
    }
}

#[tokio::test]
async fn nodes_that_lost_their_scripts_or_functions_get_them_back_and_take_once() {
    let cluster = Cluster::start();
    for lost in ["SCRIPT", "FUNCTION"] {
        let builder = RedisStore::builder().timeout(PATIENCE).prefix(lost);
        let builder = if lost == "FUNCTION" { builder.functions() } else { builder };
        let store = builder.connect_cluster([cluster.nodes[0].url()]).await.expect("the Cluster was started");
        for (place, primary) in cluster.primaries().iter().enumerate() {
            let () = primary.ask(&[lost, "FLUSH", "SYNC"]);
            let key = cluster.key_on(place);
            drop(take(&store, &key, 2).await.unwrap());
            assert_eq!(remaining(&store, &key).await, 48, "{lost}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_told_at_connect() {
    let server = RedisServer::start();
    let error = RedisStore::connect_cluster([server.url()]).await.expect_err("it has no slots");
    assert!(error.is_connection() && format!("{error:#}").contains("a node of a Redis Cluster"), "{error:#}");
    let error = RedisStore::connect_cluster(["redis://127.0.0.1:1"]).await.expect_err("nobody listens");
    assert!(error.is_connection() && error.to_string().contains("127.0.0.1:1"), "{error:#}");
    assert!(RedisStore::connect_cluster(["nothing"]).await.expect_err("no URL").is_invalid());
    assert!(RedisStore::connect_cluster([""; 0]).await.expect_err("no URL").is_invalid());
}

#[tokio::test]
async fn a_command_goes_to_the_primary_of_its_key() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    for place in 0..3 {
        let key = format!("{{key:{}}}", cluster.key_on(place));
        let _ = store.command(cmd("SET").arg(&key).arg(place)).await.expect("it is its primary");
        assert_eq!(cluster.nodes[place].keys(), std::slice::from_ref(&key));
        let script = "return redis.call('GET', KEYS[1])";
        let found = store.command(cmd("EVAL").arg(script).arg(1).arg(&key)).await.expect("it is there");
        assert_eq!(usize::from_redis_value(found).expect("a number"), place);
    }
}
