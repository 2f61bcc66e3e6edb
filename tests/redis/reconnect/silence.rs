//! Connections that die without a word, as behind a firewall that forgets them, that bring what was not asked for, or that
//! end.

use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::store::{Ask, Change, Receipt, Settlement, Settling, Store};

use super::rig::{AMPLE, LIMIT, RETURN, assert_keeps, assert_returns, connect, failure, kept, take};
use crate::support::checks::check;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::RedisServer;

fn way() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    (server, proxy)
}

/// A store whose decisions fail for no want of time.
async fn patient(proxy: &Proxy) -> RedisStore {
    let settings = RedisStore::builder().timeout(Duration::from_secs(9)).without_deny_cache();
    settings.connect(&proxy.url()).await.expect("the server was started")
}

/// Takes units of a key, or none; returns what remains.
async fn remaining(store: &RedisStore, key: &str, cost: u64) -> Option<u64> {
    let decided = store.decide(&[check(key, AMPLE, cost)], Ask::default()).wait().await.ok()?;
    Some(decided.decision.outcomes()[0].remaining())
}

fn give_back(store: &RedisStore, receipt: Receipt) -> Settling {
    store.settle(receipt, &[Settlement::new(0, Change::Refund(1))])
}

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced_after_one_decision_and_closed() {
    let (server, proxy) = way();
    // There is room for another one in a pool of one, too.
    for pool_size in [1, 8] {
        let settings = RedisStore::builder().pool_size(pool_size);
        let store = settings.connect(&proxy.url()).await.expect("the server was started");
        assert_returns(&store).await;
        let before = kept(&server);
        for _ in 0..2 {
            proxy.set_old(Mode::Mute);
            let told = failure(&store).await;
            assert!(told.contains("Timeout") && told.contains("100ms"), "{told}");
            assert_returns(&store).await;
        }
        assert_keeps(&server, before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_on_a_silent_connection_make_one_new_connection() {
    let (server, proxy) = way();
    let store = connect(&proxy.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    proxy.set_old(Mode::Mute);
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { take(&store).await.is_err() })
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
    let (_server, proxy) = way();
    let (store, mut settled, mut receipts) = (connect(&proxy.url()).await, Vec::new(), Vec::new());
    for _ in 0..3 {
        receipts.push(take(&store).await.expect("there is room").receipt);
    }
    proxy.set_old(Mode::Mute);
    for receipt in receipts {
        settled.push(give_back(&store, receipt));
        // Each leaves in a call of its own; the third waits for one of the others.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let last = settled.pop().expect("there are three");
    let applied = tokio::time::timeout(RETURN, last.wait()).await.expect("the connection is replaced in time");
    assert_eq!(applied.expect("it is given back")[0].units, 1);
}

#[tokio::test]
async fn a_settlement_while_redis_is_away_arrives_once_it_is_back_though_nobody_asks() {
    let (server, proxy) = way();
    let (store, other) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let receipt = take(&store).await.expect("there is room").receipt;
    proxy.set(Mode::Closed);
    // What is sent before the end of the connection is known may be lost.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(give_back(&store, receipt));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(remaining(&other, "ada", 0).await, Some(LIMIT - 1), "there is no way to Redis");
    proxy.set(Mode::Pass);
    let start = Instant::now();
    while remaining(&other, "ada", 0).await != Some(LIMIT) {
        assert!(start.elapsed() < Duration::from_secs(9), "how long a settlement waits for a connection, and a little");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Takes as many units of a key as no other client does, and looks at it; returns how often it saw something else, and
/// how often nothing.
async fn look_at_its_own(store: RedisStore, number: u64) -> [u64; 2] {
    let (key, own) = (format!("of {number}"), 1 + number);
    let _ = remaining(&store, &key, own).await;
    let [mut wrong, mut failed] = [0, 0];
    for _ in 0..300 {
        match remaining(&store, &key, 0).await {
            Some(left) => wrong += u64::from(left != LIMIT - own),
            None => failed += 1,
        }
    }
    [wrong, failed]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stray_reply_is_no_decisions_answer_and_fails_none_but_those_on_their_way() {
    let (_server, proxy) = way();
    let store = patient(&proxy).await;
    let clients: Vec<_> = (0..16).map(|number| tokio::spawn(look_at_its_own(store.clone(), number))).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.set_old(Mode::Stray(b"$-1\r\n"));
    let mut sum = [0, 0];
    for client in clients {
        let [wrong, failed] = client.await.expect("it ends");
        sum = [sum[0] + wrong, sum[1] + failed];
    }
    assert!(sum[0] == 0 && (1..=16).contains(&sum[1]), "{} answers of others, {} failed", sum[0], sum[1]);
}

#[tokio::test]
async fn a_stray_redirection_from_one_server_ends_the_connection_as_no_call_after_it_has_its_own_reply() {
    let (server, proxy) = way();
    let store = patient(&proxy).await;
    for (stray, key) in [(&b"-MOVED 42 127.0.0.1:6379\r\n"[..], "moved"), (b"-ASK 42 127.0.0.1:6379\r\n", "asked")] {
        assert_eq!(remaining(&store, key, 5).await, Some(LIMIT - 5));
        server.pause();
        let mut looks = Vec::new();
        for key in [key, "untouched"] {
            let store = store.clone();
            looks.push(tokio::spawn(async move { remaining(&store, key, 0).await }));
            // Each leaves in a call of its own: the second one would get the reply to the first.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        proxy.set_old(Mode::Stray(stray));
        server.resume();
        for look in looks {
            assert_eq!(look.await.expect("it ends"), None, "its reply was not its own");
        }
        assert_eq!(remaining(&store, key, 0).await, Some(LIMIT - 5), "after {key}");
    }
}

#[tokio::test]
async fn a_settlement_whose_script_is_missing_once_its_connection_was_replaced_needs_no_further_request() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await;
    let mut receipts = Vec::new();
    for _ in 0..2 {
        receipts.push(take(&store).await.expect("there is room").receipt);
    }
    let refund = |receipt| give_back(&store, receipt).wait();
    // From now on its script is known by its hash alone.
    assert_eq!(refund(receipts.remove(0)).await.expect("it is given back")[0].units, 1);
    let () = server.ask(&["SCRIPT", "FLUSH"]);
    let () = server.ask(&["CLIENT", "PAUSE", "400"]);
    let settling = refund(receipts.remove(0));
    let applied = tokio::time::timeout(Duration::from_secs(5), settling).await.expect("it is answered");
    assert_eq!(applied.expect("it arrives")[0].units, 1);
}
