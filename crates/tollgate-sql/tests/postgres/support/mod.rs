//! What the tests share: servers, a proxy, and checks.

pub(crate) mod proxy;
pub(crate) mod server;

use std::time::Duration;

use tollgate::store::{Ask, Check, Counter, Store, StoreDecision};
use tollgate::{Error, Key, Quota};
use tollgate_sql::postgres::Postgres;

use self::server::Server;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// So long that no machine needs it.
pub(crate) const AMPLE: Duration = Duration::from_secs(20);

pub(crate) fn counter(policy: &str, key: &str, quota: Quota) -> Counter {
    Counter::new(policy.try_into().expect("a valid name"), Key::new("key", key), quota)
}

/// A check of one unit, of a policy of this name.
pub(crate) fn check(policy: &str, key: &str, quota: Quota) -> Check {
    Check::new(counter(policy, key, quota), 1)
}

/// A database with the table.
pub(crate) async fn database(server: &Server) -> Postgres {
    let postgres = on(&server.url(), AMPLE, 16);
    postgres.migrate().await.expect("the table can be created");
    postgres
}

pub(crate) fn on(url: &str, budget: Duration, connections: usize) -> Postgres {
    let builder = Postgres::builder(url).timeout(budget).pool_size(connections);
    builder.connect_lazy().expect("valid settings")
}

pub(crate) async fn decide(store: &impl Store, checks: &[Check]) -> Result<StoreDecision, Error> {
    store.decide(checks, Ask::default()).wait().await
}

#[track_caller]
pub(crate) fn is_allowed(decided: Result<StoreDecision, Error>) -> bool {
    decided.expect("a decision").decision.is_allowed()
}

/// A number that the database returns.
pub(crate) async fn number(postgres: &Postgres, sql: &str) -> i64 {
    let client = postgres.pool().get().await.expect("a connection");
    client.query_one(sql, &[]).await.expect("a number").get(0)
}

/// Polls until it is so, for at most this time; returns how long it took.
pub(crate) async fn until(most: Duration, mut is_so: impl AsyncFnMut() -> bool) -> Option<Duration> {
    let start = std::time::Instant::now();
    while start.elapsed() < most {
        if is_so().await {
            return Some(start.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    None
}
