//! Passwords that change while stores are connected.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::store::Credentials;

use super::rig::{RETURN, assert_keeps, assert_returns, connect, failure, kept};
use crate::stores::take;
use crate::support::server::RedisServer;
use crate::support::vault::Vault;

#[tokio::test]
async fn a_changed_password_stops_no_connection_but_the_next_one_and_the_error_says_why() {
    let server = RedisServer::start();
    let change = |rules: &[&str]| server.ask::<()>(&[&["ACL", "SETUSER", "limiter"], rules].concat());
    change(&["on", ">horse", "~*", "+@all"]);
    let url = |password: &str| server.url().replace("redis://", &format!("redis://limiter:{password}@"));
    let store = connect(&url("horse")).await;
    assert_returns(&store).await;
    let before = kept(&server);
    change(&["resetpass", ">staple"]);
    drop(take(&store, "ada", 1).await.expect("the connection that there is stays"));
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
    failure(&store).await;
    let mut named = 0;
    for _ in 0..5 {
        let told = failure(&store).await;
        named += u32::from(told.contains("Connection") && told.contains("AuthenticationFailed"));
        assert!(!told.contains("horse") && !told.contains("staple"), "{told}");
    }
    // On a busy machine one may have no reply in time.
    assert!(named >= 3, "{named} of 5 errors say why");
    assert_returns(&connect(&url("staple")).await).await;
    change(&[">horse"]);
    assert_returns(&store).await;
    assert_keeps(&server, before).await;
}

/// The longest time without a decision, while many are asked for.
async fn longest_gap(store: RedisStore, done: Arc<AtomicBool>) -> Duration {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        if take(&store, "ada", 1).await.is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        tokio::task::yield_now().await;
    }
    longest.max(last.elapsed())
}

/// Those of the URL are others, and not used.
#[tokio::test]
async fn passwords_that_change_under_load_cost_no_more_than_a_reconnect_and_old_ones_are_not_used_again() {
    let (server, vault) = (RedisServer::start(), Vault::default());
    vault.change([&server], "first");
    let url = server.url().replace("redis://", "redis://nobody:wrong@");
    let settings = vault.settings(RedisStore::builder().without_deny_cache());
    let store = settings.connect(&url).await.expect("the password is right");
    let done = Arc::<AtomicBool>::default();
    let load: Vec<_> = (0..8).map(|_| tokio::spawn(longest_gap(store.clone(), Arc::clone(&done)))).collect();
    for round in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        vault.change([&server], &format!("password-{round}"));
        assert_returns(&store).await;
    }
    done.store(true, Ordering::Relaxed);
    for gap in load {
        let gap = gap.await.expect("it does not panic");
        assert!(gap < RETURN, "{gap:?} without a decision");
    }
    Vault::assert_used_rightly(&server);
}

#[tokio::test]
async fn credentials_that_cannot_be_had_are_an_error_of_the_connection_in_time_that_says_why() {
    let (server, sealed) = (RedisServer::start(), || async { Err::<Credentials, _>("the vault is sealed") });
    let error = RedisStore::builder().credentials(sealed).connect(&server.url()).await.expect_err("nobody can log in");
    assert!(error.is_connection() && format!("{error:?}").contains("the vault is sealed"), "{error:?}");

    let start = Instant::now();
    let settings = || RedisStore::builder().credentials(pending::<Result<Credentials, std::io::Error>>);
    let error = settings().connect(&server.url()).await.expect_err("they never come");
    assert!(error.is_timeout() && start.elapsed() < Duration::from_millis(1_500), "{error:#}: {:?}", start.elapsed());
    failure(&settings().lazy().connect(&server.url()).await.expect("the URL is one")).await;
}

#[test]
fn credentials_do_not_show_their_password() {
    let shown =
        format!("{:?} {:?}", Credentials::new("ada", "horse"), Vault::default().settings(RedisStore::builder()));
    assert!(shown.contains("ada") && !shown.contains("horse"), "{shown}");
}
