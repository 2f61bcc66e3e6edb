//! Slots that move to another primary.

use std::time::Duration;

use tollgate::Outcome;
use tollgate::store::{Ask, Store};

use super::rig::{Cluster, PATIENCE, check_of, id, quota, remaining, take};
use crate::support::server::RedisServer;

/// How long a slot stays on its way, before and after its keys.
const PAUSE: Duration = Duration::from_millis(150);

pub(super) fn set_slot(node: &RedisServer, slot: &str, what: &[&str]) {
    let (): () = node.ask(&[&["CLUSTER", "SETSLOT", slot], what].concat());
}

/// Moves a slot with its keys, slowly.
fn move_slot(cluster: &Cluster, slot: usize, from: usize, to: usize) {
    let (from, to, slot) = (&cluster.nodes[from], &cluster.nodes[to], &slot.to_string());
    set_slot(to, slot, &["IMPORTING", &id(from)]);
    set_slot(from, slot, &["MIGRATING", &id(to)]);
    std::thread::sleep(PAUSE);
    for _ in 0..100 {
        let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]);
        let Some(key) = keys.first() else { break };
        let _: String = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
        std::thread::sleep(PAUSE);
    }
    set_slot(to, slot, &["NODE", &id(to)]);
    set_slot(from, slot, &["NODE", &id(to)]);
}

#[tokio::test]
async fn a_store_that_knows_an_old_place_asks_once_more_and_then_knows_the_new_one() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let key = cluster.key_on(2);
    drop(take(&store, &key, 10).await.unwrap());
    move_slot(&cluster, cluster.slot_of(&key), 2, 0);
    assert_eq!(remaining(&store, &key).await, 40);
    let errors = || cluster.nodes[2].ask::<String>(&["INFO", "errorstats"]);
    let moved = |stats: String| stats.lines().find(|line| line.starts_with("errorstat_MOVED")).map(str::to_owned);
    let before = moved(errors());
    for _ in 0..5 {
        drop(take(&store, &key, 1).await.unwrap());
    }
    assert_eq!(moved(errors()), before, "nobody else is asked");
    assert_eq!(remaining(&store, &key).await, 35);
}

#[tokio::test]
async fn keys_of_one_request_that_are_on_two_nodes_are_waited_for_and_nothing_is_taken_meanwhile() {
    let cluster = Cluster::start();
    let (store, patient) = (cluster.store(Duration::from_millis(200)).await, cluster.store(PATIENCE).await);
    let key = cluster.key_on(0);
    let checks = [check_of("a", &key, quota(9)), check_of("b", &key, quota(9))];
    drop(store.decide(&checks, Ask::default()).wait().await.unwrap());
    let (from, to, slot) = (&cluster.nodes[0], &cluster.nodes[1], &cluster.slot_of(&key).to_string());
    set_slot(to, slot, &["IMPORTING", &id(from)]);
    set_slot(from, slot, &["MIGRATING", &id(to)]);
    let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", slot, "9"]);
    let migrate = |key: &str| {
        let _: String = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
    };
    migrate(&keys[0]);
    let start = std::time::Instant::now();
    let error = store.decide(&checks, Ask::default()).wait().await.expect_err("no node has both");
    assert!(error.is_store() || error.is_timeout(), "{error:#}");
    assert!(start.elapsed() < Duration::from_millis(700), "{:?}", start.elapsed());
    let waiting = tokio::spawn(patient.decide(&checks, Ask::default()).wait());
    tokio::time::sleep(PAUSE).await;
    migrate(&keys[1]);
    let decided = waiting.await.unwrap().expect("one node has both");
    let left: Vec<u64> = decided.decision.outcomes().iter().map(Outcome::remaining).collect();
    assert_eq!(left, [7, 7]);
}
