//! What outages leave behind: nothing.

use std::time::Duration;

use super::rig::{assert_keeps, assert_returns, connect, failure, kept, take};
use crate::support::server::RedisServer;

#[tokio::test]
async fn restarts_leave_neither_connections_nor_tasks() {
    let mut server = RedisServer::start();
    let store = connect(&server.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    for _ in 0..5 {
        server.kill();
        for _ in 0..20 {
            failure(&store).await;
        }
        server.restart();
        assert_returns(&store).await;
        assert_keeps(&server, before).await;
    }
}

#[tokio::test]
async fn a_pause_leaves_neither_connections_nor_tasks() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    for _ in 0..2 {
        server.pause();
        for _ in 0..4 {
            let callers = (0..50).map(|_| failure(&store));
            futures::future::join_all(callers).await;
        }
        server.resume();
        assert_returns(&store).await;
        assert_keeps(&server, before).await;
    }
}

#[tokio::test]
async fn a_replica_s_refusals_and_a_store_that_is_dropped_leave_neither_connections_nor_tasks() {
    let server = RedisServer::start();
    let before = kept(&server);
    let store = connect(&server.url()).await;
    assert_returns(&store).await;
    let used = kept(&server);
    let (): () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..20 {
        assert!(failure(&store).await.to_lowercase().contains("readonly"));
    }
    let (): () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    assert_returns(&store).await;
    assert_keeps(&server, used).await;
    drop(store);
    assert_keeps(&server, before).await;
}

#[tokio::test]
async fn callers_that_go_away_leave_neither_connections_nor_tasks() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    for round in 0..50 {
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let _ = tokio::time::timeout(Duration::from_micros(20 * round), take(&store)).await;
    }
    assert_returns(&store).await;
    assert_keeps(&server, before).await;
}
