//! Clients that stop or disappear in the middle of a transaction, and decisions that are abandoned.

use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate::store::{Check, StateId};
use tollgate_sql::postgres::{Postgres, PostgresTx};
use tollgate_sql::{Loaded, StateBackend};

use crate::support::proxy::{Mode, Proxy};
use crate::support::server::{Server, url};
use crate::support::{AMPLE, HOUR, check, database, decide, is_allowed, number, on, until};

const LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";

fn ada() -> Check {
    check("api", "ada", Quota::fixed_window(10, HOUR))
}

async fn load(postgres: &Postgres) -> Loaded<PostgresTx> {
    postgres.load(&[StateId::new(&ada().counter)]).await.expect("it is not locked")
}

#[tokio::test]
async fn a_client_that_stops_keeps_its_locks_for_the_budget() {
    let server = Server::start();
    let postgres = database(&server).await;
    let store = postgres.store().expect("a store");
    let stopped = on(&server.url(), Duration::from_millis(300), 1);
    let loaded = load(&stopped).await;
    let start = Instant::now();
    assert!(is_allowed(decide(&store, &[ada()]).await));
    let took = start.elapsed();
    assert!((200..1_000).contains(&took.as_millis()), "{took:?}");
    drop(loaded);
    assert!(is_allowed(decide(&stopped.store().expect("a store"), &[ada()]).await), "it connects again");
}

#[tokio::test]
async fn a_client_whose_connection_ends_keeps_no_lock() {
    let server = Server::start();
    let postgres = database(&server).await;
    let proxy = Proxy::start(server.port(), Duration::ZERO).await;
    let vanishing = on(&url(proxy.port), AMPLE, 1);
    let _loaded = load(&vanishing).await;
    assert_eq!(number(&postgres, LOCKS).await, 1);
    proxy.set(Mode::Cuts);
    let start = Instant::now();
    assert!(is_allowed(decide(&postgres.store().expect("a store"), &[ada()]).await));
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_lock_is_waited_for_no_longer_than_the_budget() {
    let server = Server::start();
    let postgres = database(&server).await;
    let _loaded = load(&postgres).await;
    let short = on(&server.url(), Duration::from_millis(200), 2);
    drop(decide(&short.store().expect("a store"), &[check("api", "bob", Quota::per_hour(1))]).await);
    let error = short.load(&[StateId::new(&ada().counter)]).await.map(drop).expect_err("it is locked");
    assert!(error.is_timeout(), "{error:#}");
    let error = decide(&short.store().expect("a store"), &[ada()]).await.expect_err("it is locked");
    assert!(error.is_timeout(), "{error:#}");
    let gone = async || number(&postgres, "SELECT count(*) FROM pg_locks WHERE NOT granted").await == 0;
    assert!(until(Duration::from_secs(1), gone).await.is_some());
}

#[tokio::test]
async fn a_transaction_that_is_dropped_is_rolled_back_before_its_connection_is_used_again() {
    let server = Server::start();
    let postgres = database(&server).await;
    let single = on(&server.url(), AMPLE, 1);
    let pid = number(&single, "SELECT pg_backend_pid()::bigint").await;
    for _ in 0..20 {
        drop(load(&single).await);
        let status = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        assert_eq!(number(&single, status).await, 0);
    }
    assert_eq!(number(&postgres, IN_TRANSACTION).await, 0);
    assert_eq!(number(&single, "SELECT pg_backend_pid()::bigint").await, pid, "the connection stays");
}

#[tokio::test]
async fn a_load_that_is_abandoned_leaves_its_connection_usable_and_no_lock() {
    let server = Server::start();
    let postgres = database(&server).await;
    let single = on(&server.url(), AMPLE, 1);
    assert!(is_allowed(decide(&single.store().expect("a store"), &[ada()]).await));
    let holder = load(&postgres).await;
    let abandoned = tokio::time::timeout(Duration::from_millis(100), load(&single)).await;
    assert!(abandoned.is_err(), "it waits for the lock");
    drop(holder);
    assert!(is_allowed(decide(&single.store().expect("a store"), &[ada()]).await));
    let gone = async || number(&postgres, LOCKS).await == 0;
    assert!(until(Duration::from_secs(1), gone).await.is_some());
}

#[test]
fn a_runtime_that_stops_in_a_transaction_leaves_no_lock() {
    let server = Server::start();
    let build =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (stays, stops) = (build(), build());
    let (postgres, single) = (stays.block_on(database(&server)), on(&server.url(), AMPLE, 1));
    let store = single.store().expect("a store");
    assert!(is_allowed(stays.block_on(decide(&store, &[ada()]))), "the connection belongs to the runtime that stays");
    let holder = stays.block_on(load(&postgres));
    let other = single.clone();
    stops.spawn(async move { load(&other).await });
    let waits = async || number(&postgres, "SELECT count(*) FROM pg_locks WHERE NOT granted").await == 1;
    assert!(stays.block_on(until(AMPLE, waits)).is_some(), "it waits for the lock");
    stops.shutdown_timeout(AMPLE);
    drop(holder);
    let gone = async || number(&postgres, LOCKS).await + number(&postgres, IN_TRANSACTION).await == 0;
    assert!(stays.block_on(until(Duration::from_secs(5), gone)).is_some());
    assert!(is_allowed(stays.block_on(decide(&store, &[ada()]))), "it connects again");
}

#[test]
fn without_a_runtime_a_decision_is_an_error() {
    let postgres = on(&url(1), AMPLE, 1);
    let loading = futures::executor::block_on(postgres.load(&[StateId::new(&ada().counter)]));
    let error = loading.map(drop).expect_err("there is no runtime");
    assert!(error.is_invalid(), "{error:#}");
}
