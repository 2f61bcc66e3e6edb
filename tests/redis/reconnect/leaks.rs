//! What outages leave behind: nothing.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::store::{Change, Store};

use super::rig::{RETURN, assert_keeps, assert_returns, connect, failure, kept};
use crate::outages::REFUSALS;
use crate::stores::{FIFTY, cut, take};
use crate::support::checks::counter;
use crate::support::server::RedisServer;

#[tokio::test]
async fn outages_fail_decisions_in_time_end_within_a_second_and_leave_neither_connections_nor_tasks() {
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
        let start = Instant::now();
        let adjusting = store.adjust(&counter("ada", FIFTY), Change::Charge(1)).wait().await;
        assert!(adjusting.is_err() && start.elapsed() < RETURN, "{adjusting:?} took {:?}", start.elapsed());
        server.restart();
        assert_returns(&store).await;
        assert_keeps(&server, used).await;
    }
    server.pause();
    for _ in 0..4 {
        for told in join_all((0..50).map(|_| failure(&store))).await {
            assert!(told.contains("Timeout") && told.contains("100ms"), "{told}");
        }
    }
    server.resume();
    assert_returns(&store).await;
    assert_keeps(&server, used).await;

    let [refuse, write] = REFUSALS[0];
    let (): () = server.ask(refuse);
    let mut refused = 0;
    for _ in 0..20 {
        refused += u32::from(failure(&store).await.to_lowercase().contains("readonly"));
    }
    // On a busy machine some have no reply in time.
    assert!(refused >= 10, "{refused} of 20");
    let (): () = server.ask(write);
    assert_returns(&store).await;
    for round in 0..50 {
        cut(&server);
        let _ = tokio::time::timeout(Duration::from_micros(20 * round), take(&store, "ada", 0)).await;
    }
    assert_returns(&store).await;
    assert_keeps(&server, used).await;
    drop(store);
    assert_keeps(&server, before).await;
}
