//! The store goes where the sentinels say.

use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::store::Credentials;

use super::rig::{NAME, Watched};
use crate::secure::acl::BY_SCRIPTS;
use crate::stores::{PATIENCE, remaining, take, time_to_decide};
use crate::support::vault::Vault;

const BUDGET: Duration = Duration::from_millis(300);
/// A budget, and what a busy machine adds to it.
const BOUND: Duration = Duration::from_millis(800);
/// Limiting goes on within this time of the sentinels' naming another primary, or of a change of a password.
const RETURN: Duration = Duration::from_secs(1);

/// One of the sentinels that a store knows is away.
#[tokio::test]
async fn decisions_resume_on_the_replica_after_the_primary_was_killed() {
    let mut watched = Watched::start();
    let urls = [&["redis://127.0.0.1:1".to_owned()], &watched.urls()[..]].concat();
    let store = RedisStore::builder().timeout(BUDGET).connect_sentinel(urls, NAME).await.expect("three are there");
    drop(take(&store, "ada", 10).await.unwrap());
    let replicas: u64 = watched.primary.ask(&["WAIT", "1", "5000"]);
    assert_eq!(replicas, 1, "it was told");
    watched.primary.kill();
    let (start, mut named, mut failed) = (Instant::now(), None, 0);
    loop {
        if named.is_none() && watched.sentinels[0].names(watched.replica.port()) {
            named = Some(Instant::now());
        }
        let asked = Instant::now();
        let decided = take(&store, "ada", 1).await;
        assert!(asked.elapsed() < BOUND, "{:?}", asked.elapsed());
        let Err(error) = decided else { break };
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
        assert!(start.elapsed() < 2 * PATIENCE, "no decision was made");
        failed += 1;
    }
    let waited = named.map(|then| then.elapsed()).unwrap_or_default();
    assert!(failed > 5 && waited < RETURN, "{failed} failed, and the replica decided after {waited:?}");
    assert_eq!(remaining(&store, "ada").await, 39, "the replica knew what was taken");
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
        let waited = time_to_decide(&store, "ada").await;
        assert!(waited < RETURN, "{waited:?}");
    }
    Vault::assert_used_rightly(&watched.primary);

    watched.lock("secret");
    let error = RedisStore::connect_sentinel(watched.urls(), NAME).await.expect_err("no password was given");
    assert!(error.is_connection(), "{error:#}");
    let settings = RedisStore::builder().primary_credentials(Credentials::new("default", "secret"));
    drop(take(&settings.connect_sentinel(watched.urls(), NAME).await.unwrap(), "ada", 1).await.unwrap());
}

#[tokio::test]
async fn the_users_of_the_primary_and_of_sentinels_need_one_rule_more_each_and_no_others() {
    let watched = Watched::start();
    let urls: Vec<_> = watched.urls().iter().map(|url| url.replace("redis://", "redis://finder:horse@")).collect();
    let taken = async |of_the_primary: &[&str], of_sentinels: &[&str]| {
        let user = ["ACL", "SETUSER", "limiter", "reset", "on", ">horse"];
        let (): () = watched.primary.ask(&[&user, &BY_SCRIPTS[..], of_the_primary].concat());
        let user = ["ACL", "SETUSER", "finder", "reset", "on", ">horse"];
        for sentinel in &watched.sentinels {
            let (): () = sentinel.ask(&[&user, of_sentinels].concat()).expect("sentinels have users");
        }
        let settings = RedisStore::builder().primary_credentials(Credentials::new("limiter", "horse"));
        let store = settings.connect_sentinel(&urls, NAME).await?;
        take(&store, "ada", 1).await.map(drop)
    };
    let (role, find) = ("+role", "+sentinel|get-master-addr-by-name");
    taken(&[role], &[find]).await.expect("the rules are enough");
    for (of_the_primary, of_sentinels) in [(&[][..], &[find][..]), (&[role], &[])] {
        let error = taken(of_the_primary, of_sentinels).await.expect_err("each rule is needed");
        assert!(format!("{error:#}").to_lowercase().contains("permission"), "{error:#}");
    }
}
