//! What is asked of the server, and servers that hang or lose the module.

use std::time::{Duration, Instant};

use tollgate::store::{Ask, Change, Settles, Store};
use tollgate::{Quota, RedisStore};
use tollgate_redis_cell::RedisCellStore;

use super::rig::{HOUR, THREE, server, store, take};
use crate::stores::{decide, first_remaining, settle};
use crate::support::checks::{check, counter};

#[tokio::test]
async fn what_it_cannot_do_is_an_error_also_where_no_layer_asked_before_and_settling_changes_nothing() {
    let server = server();
    let store = store(&server).await;
    for checks in [
        vec![check("ada", THREE, 1), check("bob", THREE, 1)],
        vec![check("ada", THREE, 1).floor(1)],
        vec![check("ada", THREE, 1).settles(Settles::ByOutcome)],
        vec![check("ada", Quota::sliding_log(3, HOUR), 1)],
        vec![check("ada", Quota::token_bucket(3, Duration::from_millis(1_001)), 1)],
    ] {
        let error = store.decide(&checks, Ask::default()).wait().await.expect_err("it cannot be done");
        assert!(error.is_invalid(), "{error:#}");
    }
    for change in [Change::Refund(1), Change::Charge(1)] {
        assert!(store.adjust(&counter("ada", THREE), change).wait().await.is_err_and(|error| error.is_invalid()));
    }
    assert!(decide(&store, &[]).await.decision.is_allowed());
    let decided = decide(&store, &[check("ada", THREE, 2)]).await;
    assert_eq!(first_remaining(&decided.decision), 1, "nothing was taken before");
    drop(settle(&store, decided.receipt, Change::Refund(2)));
    assert_eq!(first_remaining(&decide(&store, &[check("ada", THREE, 0)]).await.decision), 1);
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_budget_and_what_was_asked_is_done_once() {
    let server = server();
    let (patient, settings) = (store(&server).await, RedisStore::builder().timeout(Duration::from_millis(300)));
    let redis = settings.connect_timeout(Duration::from_secs(5)).connect(&server.url()).await.unwrap();
    let store = RedisCellStore::connect(redis).await.unwrap();
    drop(take(&patient, "ada", 1).await.unwrap());
    server.pause();
    let start = Instant::now();
    let error = take(&store, "ada", 1).await.unwrap_err();
    let late = start.elapsed();
    server.resume();
    assert!(error.is_timeout() && late < Duration::from_secs(1), "{error:#} after {late:?}");
    let looked = take(&patient, "ada", 0).await.unwrap().decision;
    assert!([1, 2].contains(&first_remaining(&looked)), "it is done once, or not at all");
    drop(take(&store, "bob", 1).await.expect("the next one has a connection of its own"));
}

#[tokio::test]
async fn a_server_that_lost_the_module_and_a_value_that_is_not_the_modules_are_failures_of_the_store() {
    let server = server();
    let store = store(&server).await;
    let _: String = server.ask(&["ACL", "SETUSER", "default", "-cl.throttle"]);
    assert!(take(&store, "ada", 1).await.is_err_and(|error| error.is_store()));
    let _: String = server.ask(&["ACL", "SETUSER", "default", "+cl.throttle"]);
    let _: String = server.ask(&["SET", "tollgate:{key:ada}:policy:1c3600s", "three", "EX", "60"]);
    assert!(take(&store, "ada", 1).await.is_err_and(|error| error.is_store()));
    drop(take(&store, "bob", 1).await.unwrap());
}
