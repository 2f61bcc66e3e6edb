//! Connections that die without a word, as behind a firewall that forgets them.

use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::Change;

use super::rig::{assert_keeps, assert_returns, connect, failure, kept};
use crate::stores::{PATIENCE, patient_store, remaining, settle, take};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::RedisServer;

/// On the way there and back.
const DELAY: Duration = Duration::from_millis(260);

fn way() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    (server, proxy)
}

#[tokio::test]
async fn a_connection_that_went_silent_is_replaced_after_one_decision_and_closed() {
    let (server, proxy) = way();
    // There is room for another one in a pool of one, too.
    for pool_size in [1, 8] {
        let settings = RedisStore::builder().without_deny_cache().pool_size(pool_size);
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

#[tokio::test]
async fn a_settlement_while_redis_is_away_arrives_once_it_is_back_though_nobody_asks() {
    let (server, proxy) = way();
    let (store, other) = (connect(&proxy.url()).await, patient_store(&server).await);
    let receipt = take(&store, "ada", 1).await.expect("there is room").receipt;
    proxy.set(Mode::Closed);
    // What is sent before the end of the connection is known may be lost.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(settle(&store, receipt, Change::Refund(1)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(remaining(&other, "ada").await, 49, "there is no way to Redis");
    proxy.set(Mode::Pass);
    let start = Instant::now();
    while remaining(&other, "ada").await != 50 {
        assert!(start.elapsed() < PATIENCE, "how long a settlement waits for a connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_far_away_is_connected_to_with_the_default_timeouts() {
    let server = RedisServer::start();
    let proxy = Proxy::far(server.port(), DELAY);
    for settings in [RedisStore::builder(), RedisStore::builder().functions()] {
        let start = Instant::now();
        let store = settings.timeout(Duration::from_secs(5)).connect(&proxy.url()).await.expect("it answers");
        assert!(start.elapsed() >= 2 * DELAY, "connecting and loading take a way there and back each");
        drop(take(&store, "ada", 1).await.expect("all is loaded"));
    }
}

#[tokio::test]
async fn a_reply_over_a_pool_may_take_as_long_as_the_timeout_of_the_store() {
    let server = RedisServer::start();
    let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).expect("the URL is one");
    let store = RedisStore::builder().timeout(PATIENCE).from_pool(pool).expect("the settings are valid");
    drop(take(&store, "ada", 1).await.expect("it is connected"));
    // Connections of a pool wait for 500 ms if nothing else is set.
    let () = server.ask(&["CLIENT", "PAUSE", "700", "ALL"]);
    drop(take(&store, "ada", 1).await.expect("the reply comes in time"));
}
