//! Several processes, and several tasks, on one Redis.

use std::time::Duration;

use futures::future::{join_all, poll_immediate};
use tollgate::RedisStore;
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Ask, MaybeFuture, Store};

use super::stores::{FIFTY, patient_store, remaining, take};
use crate::support::checks::check;
use crate::support::server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_under_concurrency_admit_exactly_the_limit() {
    let server = RedisServer::start();
    let stores = [patient_store(&server).await, patient_store(&server).await];
    let tasks = (0..64).map(|task| tokio::spawn(admitted_of_eight(stores[task % 2].clone())));
    let admitted: usize = join_all(tasks).await.into_iter().map(|task| task.unwrap()).sum();
    assert_eq!(admitted, 50);
    assert_eq!(remaining(&stores[0], "shared").await, 0);
    server.assert_every_key_expires();
}

async fn admitted_of_eight(store: RedisStore) -> usize {
    let mut admitted = 0;
    for _ in 0..8 {
        let decided = take(&store, "shared", 1).await.expect("the server is up");
        admitted += usize::from(decided.decision.is_allowed());
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_two_counters_under_concurrency_take_from_both_or_none() {
    let server = RedisServer::start();
    let stores = [patient_store(&server).await, patient_store(&server).await];
    let tasks = (0..64).map(|task| {
        let store = stores[task % 2].clone();
        let checks = [check("tight", FIFTY, 2), check("wide", FIFTY, 1)];
        tokio::spawn(async move {
            store.decide(&checks, Ask::default()).wait().await.map(|decided| decided.decision.is_allowed())
        })
    });
    let admitted = join_all(tasks).await.into_iter().filter(|task| *task.as_ref().unwrap().as_ref().unwrap()).count();
    assert_eq!(admitted, 25);
    assert_eq!(remaining(&stores[0], "tight").await, 0);
    assert_eq!(remaining(&stores[0], "wide").await, 25);
}

#[tokio::test]
async fn a_prefix_keeps_stores_apart() {
    let server = RedisServer::start();
    let one = patient_store(&server).await;
    let other = RedisStore::builder().prefix("other").connect(&server.url()).await.unwrap();
    drop(take(&one, "same", 50).await.unwrap());
    assert_eq!(remaining(&other, "same").await, 50);
    drop(take(&other, "same", 1).await.unwrap());
    assert!(server.keys()[0].starts_with("other:{") && server.keys()[1].starts_with("tollgate:{"));
}

#[tokio::test]
async fn a_caller_that_goes_away_while_connecting_leaves_the_connection_to_the_others() {
    let server = RedisServer::start();
    let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).unwrap();
    let store = RedisStore::builder().timeout(Duration::from_secs(10)).from_pool(pool).unwrap();
    let gone = store.decide(&[check("gone", FIFTY, 1)], Ask::default());
    assert!(poll_immediate(Box::pin(gone.wait())).await.is_none(), "connecting takes a while");
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
    let decided = store.decide(&checks[..255], Ask::default()).wait().await.unwrap();
    assert!(decided.decision.is_allowed());
    assert_eq!(server.keys().len(), 255);
}
