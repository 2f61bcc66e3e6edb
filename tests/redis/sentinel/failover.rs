//! The store goes where the sentinels say.

use std::time::{Duration, Instant};

use tollgate::store::{Ask, Credentials, Store, StoreDecision};
use tollgate::{Error, Quota, RedisStore};

use super::rig::{NAME, Watched};
use crate::support::checks::check;
use crate::support::vault::Vault;

/// Hardly a unit returns during a test.
const FIFTY: Quota = Quota::token_bucket(50, Duration::from_secs(30 * 86_400));
const BUDGET: Duration = Duration::from_millis(300);
/// A budget, and what a busy machine adds to it.
const BOUND: Duration = Duration::from_millis(800);
const LIMIT: Duration = Duration::from_secs(20);
/// Limiting goes on within this time of the sentinels' naming another primary, or of a change of a password.
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

/// One of the sentinels that a store knows is away.
#[tokio::test]
async fn decisions_resume_on_the_replica_after_the_primary_was_killed() {
    let mut watched = Watched::start();
    let urls = [&["redis://127.0.0.1:1".to_owned()], &watched.urls()[..]].concat();
    let store = RedisStore::builder().timeout(BUDGET).connect_sentinel(urls, NAME).await.expect("three are there");
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
async fn the_primary_is_logged_in_to_with_the_password_of_the_time_and_what_cannot_be_found_is_told_at_connect() {
    let (watched, vault) = (Watched::start(), Vault::default());
    let none = vec!["redis://127.0.0.1:1".to_owned()];
    let rows = [(watched.urls(), "other", "\"other\""), (none, NAME, ""), (vec![watched.primary.url()], NAME, "")];
    for (urls, name, told) in rows {
        let error = RedisStore::connect_sentinel(&urls, name).await.expect_err("there is no such primary");
        assert!(error.is_connection() && error.to_string().contains(told), "{urls:?}: {error:#}");
    }
    assert!(RedisStore::connect_sentinel([""; 0], NAME).await.expect_err("no URL").is_invalid());

    vault.change([&watched.primary], "first");
    let settings = vault.settings(RedisStore::builder().without_deny_cache());
    let store = settings.lazy().connect_sentinel(watched.urls(), NAME).await.expect("the URLs are some");
    for round in 0..3 {
        vault.change([&watched.primary], &format!("password-{round}"));
        let start = Instant::now();
        while let Err(error) = take(&store, 1).await {
            assert!(start.elapsed() < RETURN, "{error:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Vault::assert_used_rightly(&watched.primary);

    watched.lock("secret");
    let error = RedisStore::connect_sentinel(watched.urls(), NAME).await.expect_err("no password was given");
    assert!(error.is_connection(), "{error:#}");
    let settings = RedisStore::builder().primary_credentials(Credentials::new("default", "secret"));
    drop(take(&settings.connect_sentinel(watched.urls(), NAME).await.unwrap(), 1).await.unwrap());
}
