//! The table: creating it, and what becomes of expired rows.

use std::time::Duration;

use futures::future::join_all;
use tollgate::Quota;
use tollgate_sql::postgres::Postgres;

use crate::support::server::Server;
use crate::support::{AMPLE, HOUR, check, database, decide, is_allowed, number, on, until};

const ROWS: &str = "SELECT count(*) FROM tollgate_states";

/// Adds rows that have expired.
const EXPIRED: &str = "INSERT INTO tollgate_states
SELECT '{user:old-' || n || '}:api:1t', '\\x00', now() - interval '1 second' FROM generate_series(1, 5000) AS n";

#[tokio::test]
async fn many_processes_can_create_the_table_at_once() {
    let server = Server::start();
    let databases: Vec<_> = (0..8).map(|_| on(&server.url(), AMPLE, 1)).collect();
    for created in join_all(databases.iter().map(Postgres::migrate)).await {
        created.expect("the table is created once");
    }
    let columns = "SELECT count(*) FROM information_schema.columns WHERE table_name = 'tollgate_states'";
    assert_eq!(number(&databases[0], columns).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_writes_removes_expired_rows_by_and_by() {
    let server = Server::start();
    let postgres = database(&server).await;
    let store = postgres.store().expect("a store");
    postgres.pool().get().await.expect("a connection").batch_execute(EXPIRED).await.expect("the table is there");
    let quota = Quota::per_hour(10);
    for round in 0..30 {
        let keys: Vec<String> = (0..100).map(|key| format!("{round}-{key}")).collect();
        let checks = keys.iter().map(|key| [check("api", key, quota)]).collect::<Vec<_>>();
        assert!(join_all(checks.iter().map(|one| decide(&store, one))).await.into_iter().all(is_allowed));
    }
    let is_clean = async || number(&postgres, ROWS).await == 3_000;
    assert!(until(Duration::from_secs(5), is_clean).await.is_some(), "{}", number(&postgres, ROWS).await);
}

#[tokio::test]
async fn without_the_table_the_error_says_what_to_do_and_an_unlogged_one_is_unlogged() {
    let server = Server::start();
    let postgres = on(&server.url(), AMPLE, 1);
    let (store, one) = (postgres.store().expect("a store"), [check("api", "ada", Quota::per_hour(1))]);
    let error = decide(&store, &one).await.expect_err("no table");
    assert!(error.is_store() && error.to_string().contains("call migrate first"), "{error:#}");
    postgres.migrate_unlogged().await.expect("the table can be created");
    let unlogged = "SELECT count(*) FROM pg_class WHERE relname = 'tollgate_states' AND relpersistence = 'u'";
    assert_eq!(number(&postgres, unlogged).await, 1);
    assert!(is_allowed(decide(&store, &one).await));
}

#[tokio::test]
async fn an_expired_row_counts_as_none_and_is_removed_unless_a_decision_has_locked_it() {
    let server = Server::start();
    let postgres = database(&server).await;
    let (store, one) = (postgres.store().expect("a store"), [check("api", "ada", Quota::fixed_window(1, HOUR))]);
    let mut holder = postgres.pool().get().await.expect("a connection");
    for _ in 0..2 {
        assert!(is_allowed(decide(&store, &one).await), "there is no row, or it has expired");
        assert!(!is_allowed(decide(&store, &one).await));
        holder.execute("UPDATE tollgate_states SET expires_at = now()", &[]).await.expect("the row is there");
    }
    assert!(is_allowed(decide(&store, &one).await));
    holder.batch_execute(EXPIRED).await.expect("the table is there");
    let locked = holder.transaction().await.expect("it begins");
    let lock = "SELECT 1 FROM tollgate_states WHERE id = '{user:old-7}:api:1t' FOR UPDATE";
    locked.execute(lock, &[]).await.expect("it is there");
    assert_eq!(postgres.sweep().await.expect("it can be swept"), 4_999, "the locked one is not waited for");
    locked.rollback().await.expect("it is there");
    assert_eq!(postgres.sweep().await.expect("it can be swept"), 1);
    assert_eq!(number(&postgres, ROWS).await, 1);
    assert!(!is_allowed(decide(&store, &one).await), "others stay");
}
