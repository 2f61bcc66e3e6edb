//! What is asked of the server, what is kept there, and servers that hang or lose the module.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tollgate::store::{Ask, Change, Receipt, ReceiptItem, Settlement, Settles, Store};
use tollgate::{Quota, RedisStore};
use tollgate_redis_cell::RedisCellStore;

use super::rig::{HOUR, THREE, assert_empty, decide, server, store};
use crate::support::checks::{check, counter};

#[tokio::test]
async fn a_limit_is_exact_over_callers_that_come_all_at_once() {
    let server = server();
    let (one, other) = (store(&server).await, store(&server).await);
    let quota = Quota::token_bucket(50, HOUR * 24);
    let asked = (0..200).map(|n| decide(if n % 2 == 0 { &one } else { &other }, check("ada", quota, 1)));
    let admitted = join_all(asked).await.into_iter().filter(|decided| decided.as_ref().unwrap().decision.is_allowed());
    assert_eq!(admitted.count(), 50);
}

#[tokio::test]
async fn what_it_cannot_do_is_an_error_also_where_no_layer_asked_before() {
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
    assert!(store.decide(&[], Ask::default()).wait().await.unwrap().decision.is_allowed());
    assert_empty(&server).await;
}

#[tokio::test]
async fn settling_changes_nothing() {
    let server = server();
    let store = store(&server).await;
    let receipt = decide(&store, check("ada", THREE, 2)).await.unwrap().receipt;
    let taken = ReceiptItem::new(counter("ada", THREE), 2, 0);
    let forged = Receipt::new(receipt.store(), [taken]);
    for receipt in [receipt, forged] {
        drop(store.settle(receipt, &[Settlement::new(0, Change::Refund(2))]));
    }
    assert_eq!(decide(&store, check("ada", THREE, 0)).await.unwrap().decision.outcomes()[0].remaining(), 1);
}

#[tokio::test]
async fn a_reset_starts_a_key_anew_and_no_other() {
    let server = server();
    let store = store(&server).await;
    for user in ["ada", "bob"] {
        drop(decide(&store, check(user, THREE, 3)).await.unwrap());
    }
    store.adjust(&counter("ada", THREE), Change::Reset).wait().await.unwrap();
    store.adjust(&counter("nobody", THREE), Change::Reset).wait().await.unwrap();
    assert!(decide(&store, check("ada", THREE, 3)).await.unwrap().decision.is_allowed());
    assert!(!decide(&store, check("bob", THREE, 1)).await.unwrap().decision.is_allowed());
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_budget_and_what_was_asked_is_done_once() {
    let server = server();
    let (patient, settings) = (store(&server).await, RedisStore::builder().timeout(Duration::from_millis(300)));
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
async fn a_server_that_lost_the_module_and_a_value_that_is_not_the_modules_are_failures_of_the_store() {
    let server = server();
    let store = store(&server).await;
    let _: String = server.ask(&["ACL", "SETUSER", "default", "-cl.throttle"]);
    assert!(decide(&store, check("ada", THREE, 1)).await.is_err_and(|error| error.is_store()));
    let _: String = server.ask(&["ACL", "SETUSER", "default", "+cl.throttle"]);
    let _: String = server.ask(&["SET", "tollgate:{key:ada}:policy:1c3600s", "three", "EX", "60"]);
    assert!(decide(&store, check("ada", THREE, 1)).await.is_err_and(|error| error.is_store()));
    drop(decide(&store, check("bob", THREE, 1)).await.unwrap());
}
