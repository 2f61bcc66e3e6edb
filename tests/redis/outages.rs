//! Redis away, back, paused, or without its scripts.

use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::store::Change;

use super::stores::{FIFTY, adjust, connect, cut, patient_store, remaining, settings, settle, take, time_to_decide};
use crate::support::server::RedisServer;

const BUDGET: Duration = Duration::from_millis(100);
/// Limiting goes on within this time of the server's return.
const RETURN: Duration = Duration::from_secs(1);

/// How a server is made to refuse all writes, and to write again.
pub(super) const REFUSALS: [[&[&str]; 2]; 2] = [
    [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]],
    [&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]],
];

#[tokio::test]
async fn a_decision_that_timed_out_is_not_sent_again() {
    let server = RedisServer::start();
    let store = connect(RedisStore::builder().timeout(BUDGET), &server).await;
    server.pause();
    take(&store, "late", 1).await.expect_err("the server is paused");
    server.resume();
    time_to_decide(&store, "other").await;
    assert!(remaining(&store, "late").await >= 49, "taken at most once");
}

#[tokio::test]
async fn a_flush_of_the_scripts_or_functions_fails_nothing_and_takes_once() {
    let server = RedisServer::start();
    for (flushed, settings) in [("SCRIPT", settings()), ("FUNCTION", settings().functions().prefix("functions"))] {
        let store = connect(settings, &server).await;
        for round in 1..=5 {
            let (): () = server.ask(&[flushed, "FLUSH", "SYNC"]);
            drop(take(&store, "flushed", 2).await.unwrap());
            let (): () = server.ask(&[flushed, "FLUSH", "SYNC"]);
            adjust(&store, "flushed", FIFTY, Change::Charge(1)).await;
            assert_eq!(remaining(&store, "flushed").await, 50 - 3 * round, "{flushed}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_while_idle_costs_no_decision() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    for round in 1..=5 {
        drop(take(&store, "idle", 1).await.unwrap());
        cut(&server);
        // Its end arrives within this time.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(remaining(&store, "idle").await, 50 - round);
        cut(&server);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_connection_to_a_server_that_became_a_replica_is_replaced() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let (): () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let connections = || server.ask::<String>(&["CLIENT", "LIST", "TYPE", "normal"]);
    let id = |list: String| {
        let line = list.lines().find(|line| !line.contains("cmd=client")).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().next().map(str::to_owned))
    };
    let before = id(connections());
    let error = take(&store, "demoted", 1).await.expect_err("a replica cannot be written");
    assert!(error.is_store(), "{error:#}");
    take(&store, "demoted", 1).await.expect_err("it still is one");
    assert_ne!(before, id(connections()), "the primary may be elsewhere by now");
    let (): () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    drop(take(&store, "demoted", 1).await.unwrap());
}

#[tokio::test]
async fn a_full_server_refuses_a_decision_with_an_error_that_says_so() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let (): () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = take(&store, "full", 1).await.expect_err("nothing can be written");
    assert!(error.is_store(), "{error:#}");
    assert!(format!("{error:#}").contains("memory"), "{error:#}");
    let (): () = server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    drop(take(&store, "full", 1).await.unwrap());
}

#[tokio::test]
async fn what_is_settled_while_a_server_refuses_to_write_is_done_once_when_it_writes_again() {
    for [refuse, write] in REFUSALS {
        for (change, left) in [(Change::Refund(30), 40), (Change::Charge(5), 5)] {
            let server = RedisServer::start();
            let store = patient_store(&server).await;
            let taken = take(&store, "ada", 40).await.expect("the server is up");
            let (): () = server.ask(refuse);
            let settling = settle(&store, taken.receipt, change);
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (): () = server.ask(write);
            let start = Instant::now();
            let applied = settling.wait().await.expect("it is sent again");
            assert!(start.elapsed() < RETURN, "{:?}", start.elapsed());
            assert_eq!(applied[0].units, left.max(10) - left.min(10), "{refuse:?}");
            assert_eq!(remaining(&store, "ada").await, left, "{refuse:?}");
        }
    }
}
