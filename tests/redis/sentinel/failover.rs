//! The store goes where the sentinels say.

use std::time::{Duration, Instant};

use tollgate::store::{Ask, Store, StoreDecision};
use tollgate::{Error, Quota, RedisStore};

use super::rig::{NAME, Watched, wait_for};
use crate::support::checks::check;

/// Hardly a unit returns during a test.
const FIFTY: Quota = Quota::token_bucket(50, Duration::from_secs(30 * 86_400));
const BUDGET: Duration = Duration::from_millis(300);
/// A budget, and what a busy machine adds to it.
const BOUND: Duration = Duration::from_millis(800);
const LIMIT: Duration = Duration::from_secs(20);
/// Limiting goes on within this time of the sentinels' naming another primary.
const RETURN: Duration = Duration::from_secs(1);

async fn take(store: &RedisStore, cost: u64) -> Result<StoreDecision, Error> {
    store.decide(&[check("key", FIFTY, cost)], Ask::default()).wait().await
}

/// Asks until a decision is made; returns how long after a sentinel named the replica that was.
async fn time_to_decide(store: &RedisStore, watched: &Watched) -> Duration {
    let (start, mut named) = (Instant::now(), None);
    while start.elapsed() < LIMIT {
        if named.is_none() && watched.sentinels[0].names(watched.replica.port()) {
            named = Some(Instant::now());
        }
        let asked = Instant::now();
        let decided = take(store, 1).await;
        assert!(asked.elapsed() < BOUND, "{:?}", asked.elapsed());
        if decided.is_ok() {
            return named.map_or(Duration::ZERO, |then| then.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no decision was made in {:?}", start.elapsed());
}

#[tokio::test]
async fn decisions_resume_on_the_replica_after_the_primary_was_killed() {
    let mut watched = Watched::start();
    let store = RedisStore::builder().timeout(BUDGET).connect_sentinel(watched.urls(), NAME).await.unwrap();
    drop(take(&store, 10).await.unwrap());
    assert_eq!(watched.primary.keys().len(), 1);
    let replicas: u64 = watched.primary.ask(&["WAIT", "1", "5000"]);
    assert_eq!(replicas, 1, "it was told");
    watched.primary.kill();
    for _ in 0..5 {
        let error = take(&store, 1).await.expect_err("the primary is dead");
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
    }
    let waited = time_to_decide(&store, &watched).await;
    assert!(waited < RETURN, "{waited:?}");
    let decided = take(&store, 0).await.unwrap();
    assert_eq!(decided.decision.outcomes()[0].remaining(), 39, "the replica knew what was taken");
    assert!(watched.replica.ask::<String>(&["INFO", "replication"]).contains("role:master"));
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn decisions_leave_a_primary_that_became_a_replica() {
    let watched = Watched::start();
    let store = RedisStore::builder().timeout(BUDGET).connect_sentinel(watched.urls(), NAME).await.unwrap();
    drop(take(&store, 1).await.unwrap());
    let _: String = watched.sentinels[0].ask(&["SENTINEL", "FAILOVER", NAME]).expect("there is a good replica");
    let demoted = || watched.primary.ask::<String>(&["INFO", "replication"]).contains("role:slave");
    wait_for("the old primary follows the new one", demoted);
    let waited = time_to_decide(&store, &watched).await;
    assert!(waited < RETURN, "{waited:?}");
}

#[tokio::test]
async fn a_sentinel_that_is_away_is_passed_over() {
    let mut watched = Watched::start();
    let urls = watched.urls();
    watched.sentinels[0].kill();
    let store = RedisStore::builder().timeout(BUDGET).connect_sentinel(&urls, NAME).await.expect("two are left");
    drop(take(&store, 1).await.unwrap());
}

#[tokio::test]
async fn the_primary_may_ask_for_a_password_and_the_sentinels_for_none() {
    let watched = Watched::start();
    watched.lock("secret");
    let error = RedisStore::connect_sentinel(watched.urls(), NAME).await.expect_err("no password was given");
    assert!(error.is_connection(), "{error:#}");
    let store = RedisStore::builder().primary_credentials(tollgate::store::Credentials::new("default", "secret"));
    let store = store.connect_sentinel(watched.urls(), NAME).await.unwrap();
    drop(take(&store, 1).await.unwrap());
}

#[tokio::test]
async fn what_cannot_be_found_is_told_at_connect() {
    let watched = Watched::start();
    let error = RedisStore::connect_sentinel(watched.urls(), "other").await.expect_err("no such name");
    assert!(error.is_connection() && error.to_string().contains("\"other\""), "{error:#}");
    let error = RedisStore::connect_sentinel(["redis://127.0.0.1:1"], NAME).await.expect_err("nobody listens");
    assert!(error.is_connection(), "{error:#}");
    let error = RedisStore::connect_sentinel([watched.primary.url()], NAME).await.expect_err("it is no sentinel");
    assert!(error.is_connection(), "{error:#}");
    assert!(RedisStore::connect_sentinel([""; 0], NAME).await.expect_err("no URL").is_invalid());
}
