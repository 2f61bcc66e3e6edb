//! Servers that die, hang, or lose the module.

use std::time::{Duration, Instant};

use tollgate::store::{Ask, Store};
use tollgate::{Decision, RateLimitLayer, RedisStore, Source};
use tollgate_redis_cell::RedisCellStore;

use super::rig::{THREE, app, by_user, decide, send, server, store};
use crate::support::checks::check;

/// Limits are shared again within this time of the server's return: the breaker asks twice a second.
const RETURN: Duration = Duration::from_secs(3);

#[tokio::test]
async fn while_the_server_is_dead_a_local_store_decides_and_then_it_again() {
    let mut server = server();
    let store = RedisCellStore::connect(RedisStore::connect(&server.url()).await.unwrap()).await.unwrap();
    let app = app(&RateLimitLayer::new(store, by_user(THREE)).expose_decisions());
    assert_eq!(send(&app, "ada").await.extensions().get::<Decision>().unwrap().source(), Source::Store);
    server.kill();
    for status in [200, 200, 200, 429] {
        let response = send(&app, "ada").await;
        assert_eq!(response.status(), status);
        assert_eq!(response.extensions().get::<Decision>().unwrap().source(), Source::Fallback);
    }
    server.restart();
    let start = Instant::now();
    loop {
        let response = send(&app, "bob").await;
        if response.extensions().get::<Decision>().unwrap().source() == Source::Store {
            break;
        }
        assert!(start.elapsed() < RETURN, "it still decides without the store");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_budget_and_what_was_asked_is_done_once() {
    let server = server();
    let (patient, settings) = (store(&server).await, RedisStore::builder().timeout(Duration::from_millis(50)));
    let redis = settings.connect_timeout(Duration::from_secs(5)).connect(&server.url()).await.unwrap();
    let store = RedisCellStore::connect(redis).await.unwrap();
    drop(decide(&patient, check("ada", THREE, 1)).await.unwrap());
    server.pause();
    let start = Instant::now();
    let error = decide(&store, check("ada", THREE, 1)).await.unwrap_err();
    let late = start.elapsed();
    server.resume();
    assert!(error.is_timeout() && late < Duration::from_secs(1), "{error:#} after {late:?}");
    let looked = decide(&patient, check("ada", THREE, 0)).await.unwrap().decision;
    assert!([1, 2].contains(&looked.outcomes()[0].remaining()), "it is done once, or not at all");
    drop(decide(&store, check("bob", THREE, 1)).await.expect("the next one has a connection of its own"));
}

#[tokio::test]
async fn a_server_that_lost_the_module_is_a_failure_of_the_store() {
    let server = server();
    let store = store(&server).await;
    let _: String = server.ask(&["ACL", "SETUSER", "default", "-cl.throttle"]);
    let error = decide(&store, check("ada", THREE, 1)).await.unwrap_err();
    assert!(error.is_store(), "{error:#}");
    let _: String = server.ask(&["ACL", "SETUSER", "default", "+cl.throttle"]);
    drop(decide(&store, check("ada", THREE, 1)).await.unwrap());
}

#[tokio::test]
async fn a_value_that_is_not_the_modules_is_an_error_and_ends_nothing() {
    let server = server();
    let store = store(&server).await;
    let _: String = server.ask(&["SET", "tollgate:{key:ada}:policy:1c3600s", "three", "EX", "60"]);
    let error = decide(&store, check("ada", THREE, 1)).await.unwrap_err();
    assert!(error.is_store(), "{error:#}");
    drop(decide(&store, check("bob", THREE, 1)).await.unwrap());
}

#[tokio::test]
async fn a_deadline_before_the_timeout_ends_a_decision() {
    let server = server();
    let store = store(&server).await;
    server.pause();
    let ask = Ask::default().within(Duration::from_millis(50));
    let start = Instant::now();
    let error = store.decide(&[check("ada", THREE, 1)], ask).wait().await.unwrap_err();
    let late = start.elapsed();
    server.resume();
    assert!(error.is_timeout() && late < Duration::from_secs(1), "{error:#} after {late:?}");
}
