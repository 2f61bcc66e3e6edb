//! Several processes, and several tasks, on one Redis.

use futures::future::poll_immediate;
use tollgate::RedisStore;
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Ask, MaybeFuture, Store};

use super::stores::{FIFTY, PATIENCE, admitted, decide, patient_store, remaining, take};
use crate::support::checks::check;
use crate::support::server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_under_concurrency_admit_exactly_the_limit() {
    let server = RedisServer::start();
    let stores = [patient_store(&server).await, patient_store(&server).await];
    assert_eq!(admitted(&stores, &[check("shared", FIFTY, 1)], 64, 8).await, 50);
    assert_eq!(remaining(&stores[0], "shared").await, 0);
    server.assert_every_key_expires();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_two_counters_under_concurrency_take_from_both_or_none() {
    let server = RedisServer::start();
    let stores = [patient_store(&server).await, patient_store(&server).await];
    assert_eq!(admitted(&stores, &[check("tight", FIFTY, 2), check("wide", FIFTY, 1)], 64, 1).await, 25);
    assert_eq!(remaining(&stores[0], "tight").await, 0);
    assert_eq!(remaining(&stores[0], "wide").await, 25);
}

#[tokio::test]
async fn a_caller_that_goes_away_while_connecting_leaves_the_connection_to_the_others() {
    let server = RedisServer::start();
    let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).unwrap();
    let store = RedisStore::builder().timeout(PATIENCE).from_pool(pool).unwrap();
    assert!(poll_immediate(Box::pin(take(&store, "gone", 1))).await.is_none(), "connecting takes a while");
    assert_eq!(remaining(&store, "here").await, 50);
}

#[tokio::test]
async fn too_many_checks_are_refused_at_once_with_what_is_allowed() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let checks: Vec<_> = (0..256).map(|number| check(&number.to_string(), FIFTY, 1)).collect();
    let MaybeFuture::Ready(Err(error)) = store.decide(&checks, Ask::default()) else {
        panic!("it is known without asking")
    };
    assert!(error.is_invalid() && error.to_string().contains("255"), "{error}");
    assert!(decide(&store, &checks[..255]).await.decision.is_allowed());
    assert_eq!(server.keys().len(), 255);
}
