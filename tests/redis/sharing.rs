//! Several processes, tasks and policies on one Redis.

use std::time::Duration;

use futures::future::poll_immediate;
use tokio::time;
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Ask, Change, Check, MaybeFuture, Store};
use tollgate::{Quota, RedisStore};

use super::stores::{FIFTY, PATIENCE, admitted, all_remaining, decide, on_clock, patient_store, remaining, take};
use crate::support::checks::{check, counter};
use crate::support::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);

const QUOTAS: [Quota; 5] = [
    Quota::fixed_window(5, HOUR),
    Quota::sliding_log(5, HOUR),
    Quota::sliding_window(5, HOUR),
    Quota::token_bucket(5, HOUR).burst(7),
    Quota::leaky_bucket(5, HOUR),
];

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

/// As when several responses are asked for together, and awaited one after the other.
#[tokio::test]
async fn what_is_awaited_late_has_all_its_time_from_then() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    let decision = store.decide(&[check("late", FIFTY, 1)], Ask::default()).wait();
    let change = store.adjust(&counter("late", FIFTY), Change::Reset).wait();
    time::pause();
    time::advance(2 * PATIENCE).await;
    time::resume();
    assert!(decision.await.expect("Redis is there").decision.is_allowed());
    assert_eq!(change.await.expect("Redis is there").units, 1);
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

#[tokio::test]
async fn all_algorithms_of_a_request_take_their_units_or_none_does() {
    let (server, _, store) = on_clock().await;
    let all = |cost: u64| -> Vec<Check> { QUOTAS.iter().map(|&quota| check("all", quota, cost)).collect() };
    assert!(decide(&store, &all(1)).await.decision.is_allowed());
    let kept = || -> Vec<(Vec<u8>, i64)> {
        server.keys().iter().map(|key| (server.ask(&["GET", key]), server.ask(&["PEXPIRETIME", key]))).collect()
    };
    let before = kept();
    assert_eq!(before.len(), 5);
    for refusing in &QUOTAS {
        for place in 0..=4 {
            // The refusing check stands first, last, and in between.
            let mut checks: Vec<Check> = all(1).into_iter().take(4).collect();
            checks.retain(|check| check.counter.quota() != refusing);
            checks.insert(place.min(checks.len()), check("all", *refusing, 1).floor(u64::MAX));
            let decision = decide(&store, &checks).await.decision;
            assert!(!decision.is_allowed() && decision.denied_by().count() == 1, "{checks:?}: {decision:?}");
        }
    }
    assert_eq!(kept(), before, "no value and no expiry has changed");
    assert_eq!(all_remaining(&decide(&store, &all(0)).await.decision), [4, 4, 4, 6, 0]);
}
