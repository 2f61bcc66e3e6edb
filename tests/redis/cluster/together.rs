//! Decisions over keys of one slot.

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::{FromRedisValue, Value, cmd};
use tollgate::store::{Ask, Change, Settlement, Store};

use super::rig::{Cluster, FIFTY, PATIENCE, check_of, quota, remaining, take};
use crate::support::checks::{check, counter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_are_counted_on_all_primaries_and_each_exactly() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let asked = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..160 {
                let decided = store.decide(&[check("hot", quota(500), 1)], Ask::default()).wait().await.unwrap();
                allowed += u32::from(decided.decision.is_allowed());
            }
            allowed
        })
    });
    let asked: Vec<_> = asked.collect();
    for number in 0..60 {
        drop(take(&store, &format!("key {number}"), 1).await.unwrap());
    }
    let mut allowed = 0;
    for task in asked {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 500, "of 1,280 requests");
    for primary in cluster.primaries() {
        let keys: u64 = primary.ask(&["DBSIZE"]);
        assert!(keys > 5, "{keys} keys on {}", primary.port());
        primary.assert_every_key_expires();
    }
}

#[tokio::test]
async fn policies_over_one_key_are_one_step_whatever_the_slot() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    for place in 0..3 {
        let key = cluster.key_on(place);
        let checks = [check_of("wide", &key, quota(9)), check_of("narrow", &key, quota(2))];
        let primary = &cluster.primaries()[place];
        for allowed in [true, true, false, false] {
            let before = primary.scripts();
            assert_eq!(store.decide(&checks, Ask::default()).wait().await.unwrap().decision.is_allowed(), allowed);
            assert_eq!(primary.scripts() - before, 1, "one script call");
        }
        assert_eq!(primary.keys().len(), 2);
        let left = store.decide(&[check_of("wide", &key, quota(9))], Ask::default()).wait().await.unwrap();
        assert_eq!(left.decision.outcomes()[0].remaining(), 6, "two and this one");
    }
}

#[tokio::test]
async fn settlements_adjustments_and_resets_find_their_node() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    for place in 0..3 {
        let key = cluster.key_on(place);
        let taken = take(&store, &key, 10).await.unwrap();
        drop(store.settle(taken.receipt, &[Settlement::new(0, Change::Refund(4))]));
        assert_eq!(remaining(&store, &key).await, 44);
        store.adjust(&counter(&key, FIFTY), Change::Charge(40)).wait().await.unwrap();
        assert_eq!(remaining(&store, &key).await, 4);
        store.adjust(&counter(&key, FIFTY), Change::Reset).wait().await.unwrap();
        assert_eq!(remaining(&store, &key).await, 50);
    }
}

#[tokio::test]
async fn nodes_that_lost_their_scripts_or_functions_get_them_back_and_take_once() {
    let cluster = Cluster::start();
    for (functions, lost) in [(false, ["SCRIPT", "FLUSH", "SYNC"]), (true, ["FUNCTION", "FLUSH", "SYNC"])] {
        let builder = RedisStore::builder().timeout(PATIENCE).prefix(lost[0]);
        let builder = if functions { builder.functions() } else { builder };
        let store = builder.connect_cluster([cluster.nodes[0].url()]).await.expect("the Cluster was started");
        let libraries = || cluster.primaries().iter().map(|node| node.ask::<Vec<Value>>(&["FUNCTION", "LIST"]).len());
        assert!(!functions || libraries().eq([1, 1, 1]));
        for place in 0..3 {
            let () = cluster.nodes[place].ask(&lost);
            let key = cluster.key_on(place);
            drop(take(&store, &key, 2).await.unwrap());
            assert_eq!(remaining(&store, &key).await, 48, "{lost:?}");
        }
        assert!(!functions || libraries().eq([1, 1, 1]));
    }
}

#[tokio::test]
async fn a_server_that_is_no_cluster_is_told_at_connect() {
    let server = crate::support::server::RedisServer::start();
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
