//! Decisions are exact over all stores of one database.

use std::env;
use std::process::{Command, Stdio};

use futures::future::join_all;
use tollgate::Quota;
use tollgate::store::{Check, StateId};
use tollgate_sql::postgres::Postgres;
use tollgate_sql::{BackendStore, StateBackend};

use crate::support::server::Server;
use crate::support::{AMPLE, HOUR, check, database, decide, is_allowed, number, on, until};

/// The URL of the database, for processes that a test starts.
const DATABASE: &str = "TOLLGATE_TEST_DATABASE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_admit_the_limit_exactly() {
    const TEST: &str = "exact::two_processes_admit_the_limit_exactly";
    let quota = Quota::fixed_window(500, HOUR);
    // The test starts itself again, twice.
    if let Ok(url) = env::var(DATABASE) {
        let store = on(&url, AMPLE, 8).store().expect("a store");
        let counts = join_all((0..32).map(|_| tokio::spawn(admitted(store.clone(), quota, 20)))).await;
        let count: usize = counts.into_iter().map(|count| count.expect("no panic")).sum();
        println!("\nadmitted {count}");
        return;
    }
    let server = Server::start();
    let postgres = database(&server).await;
    let locked = postgres.load(&[StateId::new(&check("api", "ada", quota).counter)]).await.expect("it is free");
    let start = || {
        let mut own = Command::new(env::current_exe().expect("a test has a file"));
        own.args(["--exact", TEST, "--nocapture"]).env(DATABASE, server.url()).stdout(Stdio::piped());
        own.spawn().expect("it can start itself")
    };
    let children = [start(), start()];
    let both_wait = async || number(&postgres, "SELECT count(*) FROM pg_locks WHERE NOT granted").await == 2;
    assert!(until(AMPLE / 2, both_wait).await.is_some(), "each has one transaction, as there is one key");
    drop(locked);
    let counts = children.map(|child| {
        let output = child.wait_with_output().expect("it was started");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = text.lines().find_map(|line| line.strip_prefix("admitted ")?.parse::<usize>().ok());
        count.expect("a process prints its count")
    });
    assert_eq!(counts.iter().sum::<usize>(), 500, "of 1,280 requests: {counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "they ran at once: {counts:?}");
    assert_eq!(number(&postgres, "SELECT count(*) FROM tollgate_states").await, 1);
}

/// Returns how many of so many requests are admitted.
async fn admitted(store: BackendStore<Postgres>, quota: Quota, requests: usize) -> usize {
    let mut count = 0;
    for _ in 0..requests {
        count += usize::from(is_allowed(decide(&store, &[check("api", "ada", quota)]).await));
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_first_requests_at_once_one_is_admitted() {
    let server = Server::start();
    let first = database(&server).await;
    let stores = [first.store().expect("a store"), on(&server.url(), AMPLE, 16).store().expect("a store")];
    let quota = Quota::fixed_window(1, HOUR);
    for round in 0..100 {
        let key = format!("new-{round}");
        let checks = [check("a", &key, quota), check("b", &key, quota)];
        let turned: Vec<Check> = checks.iter().rev().cloned().collect();
        let decided = tokio::join!(decide(&stores[0], &checks), decide(&stores[1], &turned));
        assert_eq!(usize::from(is_allowed(decided.0)) + usize::from(is_allowed(decided.1)), 1, "round {round}");
    }
}
