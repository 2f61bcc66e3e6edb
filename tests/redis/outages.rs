//! Redis away, back, paused, or without its scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::timeout;
use tollgate::RedisStore;
use tollgate::store::{Change, Settlement, Store};

use super::stores::{FIFTY, patient_store, remaining, store_with_budget, take, time_to_decide};
use crate::support::checks::counter;
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
    let store = store_with_budget(&server, BUDGET).await;
    server.pause();
    take(&store, "late", 1).await.expect_err("the server is paused");
    server.resume();
    time_to_decide(&store, "other").await;
    assert!(remaining(&store, "late").await >= 49, "taken at most once");
}

#[tokio::test]
async fn a_flush_of_the_scripts_fails_nothing_and_takes_once() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    for round in 1..=5 {
        let (): () = server.ask(&["SCRIPT", "FLUSH"]);
        drop(take(&store, "flushed", 2).await.unwrap());
        let (): () = server.ask(&["SCRIPT", "FLUSH"]);
        store.adjust(&counter("flushed", FIFTY), Change::Charge(1)).wait().await.unwrap();
        assert_eq!(remaining(&store, "flushed").await, 50 - 3 * round);
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_while_idle_costs_no_decision() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    for round in 1..=5 {
        drop(take(&store, "idle", 1).await.unwrap());
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        // Its end arrives within this time.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(remaining(&store, "idle").await, 50 - round);
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
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
            let settling = store.settle(taken.receipt, &[Settlement::new(0, change)]);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_panics_holds_up_no_decision_and_not_the_store() {
    let (server, is_broken) = (RedisServer::start(), Arc::<AtomicBool>::default());
    let broken = Arc::clone(&is_broken);
    let clock = move || {
        assert!(!broken.load(Ordering::SeqCst), "the clock is broken");
        SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later")
    };
    let settings = RedisStore::builder().without_deny_cache().timeout(BUDGET).clock(clock);
    let store = settings.connect(&server.url()).await.expect("the server was started");
    for round in 0..3 {
        is_broken.store(true, Ordering::SeqCst);
        let asked = (0..20).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { take(&store, "broken", 1).await })
        });
        for task in asked.collect::<Vec<_>>() {
            let ended = timeout(RETURN, task).await.unwrap_or_else(|_| panic!("round {round}: it has not ended"));
            // It panics in the task that asked, or ends with an error.
            assert!(!matches!(ended, Ok(Ok(_))), "round {round}: it was decided without a time");
        }
        is_broken.store(false, Ordering::SeqCst);
        let start = Instant::now();
        while take(&store, "whole", 1).await.is_err() {
            assert!(start.elapsed() < RETURN, "round {round}: nothing is decided any more");
        }
    }
}
