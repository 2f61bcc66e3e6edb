//! Connections that die without a word, as behind a firewall that forgets them.

use std::time::Duration;

use tollgate::store::{Change, Settlement, Store};

use super::rig::{RETURN, assert_keeps, assert_returns, connect, failure, kept, take};
use crate::proxy::Proxy;
use crate::support::server::RedisServer;

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced_after_one_decision_and_closed() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = connect(&proxy.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    assert_eq!(before.0, 1);
    for _ in 0..3 {
        proxy.silence();
        let told = failure(&store).await;
        assert!(told.contains("Timeout") && told.contains("100ms"), "{told}");
        assert_returns(&store).await;
    }
    assert_keeps(&server, before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_on_a_silent_connection_make_one_new_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = connect(&proxy.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    proxy.silence();
    let callers: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn({
                let store = store.clone();
                async move { take(&store).await.is_err() }
            })
        })
        .collect();
    let mut failed = 0;
    for caller in callers {
        failed += usize::from(caller.await.expect("no caller panics"));
    }
    // On a busy machine some begin when the others have failed already, and find the new connection.
    assert!(failed > 50, "only {failed} failed");
    assert_returns(&store).await;
    assert_keeps(&server, before).await;
}

#[tokio::test]
async fn settlements_alone_find_out_that_their_connection_is_silent_and_those_behind_them_arrive() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = connect(&proxy.url()).await;
    let mut receipts = Vec::new();
    for _ in 0..3 {
        receipts.push(take(&store).await.expect("there is room").receipt);
    }
    proxy.silence();
    let mut settled = Vec::new();
    for receipt in receipts {
        settled.push(store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]));
        // Each leaves in a call of its own; the third waits for one of the others.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let last = settled.pop().expect("there are three");
    let applied = tokio::time::timeout(RETURN, last.wait()).await.expect("the connection is replaced in time");
    assert_eq!(applied.expect("it is given back")[0].units, 1);
}

#[tokio::test]
async fn a_settlement_that_takes_longer_than_the_budget_arrives_though_its_store_is_dropped() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await;
    let receipt = take(&store).await.expect("there is room").receipt;
    let (): () = server.ask(&["CLIENT", "PAUSE", "400"]);
    let settling = store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]);
    drop(store);
    let applied = tokio::time::timeout(Duration::from_secs(5), settling.wait()).await.expect("it is answered");
    assert_eq!(applied.expect("it arrives")[0].units, 1);
}

#[tokio::test]
async fn a_settlement_whose_script_is_missing_once_its_connection_was_replaced_needs_no_further_request() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await;
    let mut receipts = Vec::new();
    for _ in 0..2 {
        receipts.push(take(&store).await.expect("there is room").receipt);
    }
    let refund = |receipt| store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]).wait();
    // From now on its script is known by its hash alone.
    assert_eq!(refund(receipts.remove(0)).await.expect("it is given back")[0].units, 1);
    let () = server.ask(&["SCRIPT", "FLUSH"]);
    let () = server.ask(&["CLIENT", "PAUSE", "400"]);
    let settling = refund(receipts.remove(0));
    let applied = tokio::time::timeout(Duration::from_secs(5), settling).await.expect("it is answered");
    assert_eq!(applied.expect("it arrives")[0].units, 1);
}
