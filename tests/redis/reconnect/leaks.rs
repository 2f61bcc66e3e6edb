//! What outages leave behind: nothing.

use std::time::Duration;

use futures::future::join_all;

use super::rig::{assert_keeps, assert_returns, connect, failure, kept, take};
use crate::support::server::RedisServer;

#[tokio::test]
async fn outages_and_callers_that_go_away_leave_neither_connections_nor_tasks() {
    let mut server = RedisServer::start();
    let before = kept(&server);
    let store = connect(&server.url()).await;
    assert_returns(&store).await;
    let used = kept(&server);
    for _ in 0..3 {
        server.kill();
        for _ in 0..20 {
            failure(&store).await;
        }
        server.restart();
        assert_returns(&store).await;
        assert_keeps(&server, used).await;
    }
    server.pause();
    for _ in 0..4 {
        join_all((0..50).map(|_| failure(&store))).await;
    }
    server.resume();
    assert_returns(&store).await;
    assert_keeps(&server, used).await;

    let (): () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    for _ in 0..20 {
        assert!(failure(&store).await.to_lowercase().contains("readonly"));
    }
    let (): () = server.ask(&["REPLICAOF", "NO", "ONE"]);
    assert_returns(&store).await;
    for round in 0..50 {
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let _ = tokio::time::timeout(Duration::from_micros(20 * round), take(&store)).await;
    }
    assert_returns(&store).await;
    assert_keeps(&server, used).await;
    drop(store);
    assert_keeps(&server, before).await;
}
