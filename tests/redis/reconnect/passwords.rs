//! Passwords that change while stores are connected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::Value;
use tollgate::deadpool_redis::{Config, Runtime};
use tollgate::store::{Credentials, RedisStoreBuilder};

use super::rig::{RETURN, assert_keeps, assert_returns, connect, failure, kept, take};
use crate::support::server::RedisServer;

fn change(server: &RedisServer, rules: &[&str]) {
    let (): () = server.ask(&[&["ACL", "SETUSER", "limiter"], rules].concat());
}

fn kill(server: &RedisServer) {
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "limiter"]);
}

#[tokio::test]
async fn a_changed_password_stops_no_connection_but_the_next_one_and_the_error_says_why() {
    let server = RedisServer::start();
    change(&server, &["on", ">horse", "~*", "+@all"]);
    let url = |password: &str| server.url().replace("redis://", &format!("redis://limiter:{password}@"));
    let store = connect(&url("horse")).await;
    assert_returns(&store).await;
    let before = kept(&server);
    change(&server, &["resetpass", ">staple"]);
    drop(take(&store).await.expect("the connection that there is stays"));
    kill(&server);
    failure(&store).await;
    for _ in 0..5 {
        let told = failure(&store).await;
        assert!(told.contains("Connection") && told.contains("AuthenticationFailed"), "{told}");
        assert!(!told.contains("horse") && !told.contains("staple"), "{told}");
    }
    let renewed = connect(&url("staple")).await;
    assert_returns(&renewed).await;
    drop(renewed);
    change(&server, &[">horse"]);
    assert_returns(&store).await;
    assert_keeps(&server, before).await;
}

#[tokio::test]
async fn two_passwords_at_a_time_let_stores_change_theirs_without_a_failure() {
    let server = RedisServer::start();
    change(&server, &["on", ">horse", "~*", "+@all"]);
    let url = |password: &str| server.url().replace("redis://", &format!("redis://limiter:{password}@"));
    let old = connect(&url("horse")).await;
    change(&server, &[">staple"]);
    kill(&server);
    assert_returns(&old).await;
    let new = connect(&url("staple")).await;
    drop(old);
    change(&server, &["<horse"]);
    for _ in 0..3 {
        kill(&server);
        assert_returns(&new).await;
    }
}

/// Where the password is at the time.
#[derive(Clone, Default)]
struct Vault(Arc<Mutex<String>>);

impl Vault {
    /// Changes the password here and there at once, and closes the connections.
    fn rotate(&self, server: &RedisServer, password: &str) {
        password.clone_into(&mut self.0.lock().expect("nobody panics here"));
        change(server, &["on", "resetpass", &format!(">{password}"), "~*", "+@all"]);
        kill(server);
    }

    fn settings(&self) -> RedisStoreBuilder {
        let vault = self.clone();
        RedisStore::builder().without_deny_cache().credentials(move || {
            let password = vault.0.lock().expect("nobody panics here").clone();
            async move { Ok::<_, std::convert::Infallible>(Credentials::new("limiter", password)) }
        })
    }
}

/// The longest time without a decision, while many are asked for.
async fn longest_gap(store: RedisStore, done: Arc<AtomicBool>) -> Duration {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        if take(&store).await.is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        tokio::task::yield_now().await;
    }
    longest.max(last.elapsed())
}

#[tokio::test]
async fn passwords_that_change_under_load_cost_no_more_than_a_reconnect_and_old_ones_are_not_used_again() {
    let (server, vault) = (RedisServer::start(), Vault::default());
    vault.rotate(&server, "first");
    let store = vault.settings().connect(&server.url()).await.expect("the password is right");
    let done = Arc::<AtomicBool>::default();
    let load: Vec<_> = (0..8).map(|_| tokio::spawn(longest_gap(store.clone(), Arc::clone(&done)))).collect();
    for round in 0..5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        vault.rotate(&server, &format!("password-{round}"));
        assert_returns(&store).await;
    }
    done.store(true, Ordering::Relaxed);
    for gap in load {
        let gap = gap.await.expect("it does not panic");
        assert!(gap < RETURN, "{gap:?} without a decision");
    }
    let refused: Vec<Value> = server.ask(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "somebody used what was no password any more: {refused:?}");
}

#[tokio::test]
async fn credentials_take_the_place_of_those_in_the_url() {
    let (server, vault) = (RedisServer::start(), Vault::default());
    vault.rotate(&server, "right");
    let url = server.url().replace("redis://", "redis://nobody:wrong@");
    let store = vault.settings().connect(&url).await.expect("the URL's are not used");
    drop(take(&store).await.expect("it is connected"));
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    assert!(clients.contains("user=limiter"), "{clients}");
}

#[tokio::test]
async fn credentials_that_cannot_be_had_are_an_error_of_the_connection_in_time_that_says_why() {
    let server = RedisServer::start();
    let error = RedisStore::builder()
        .credentials(|| async { Err::<Credentials, _>("the vault is sealed") })
        .connect(&server.url())
        .await
        .expect_err("nobody can log in");
    assert!(error.is_connection() && format!("{error:?}").contains("the vault is sealed"), "{error:?}");

    let start = Instant::now();
    let never = || std::future::pending::<Result<Credentials, std::io::Error>>();
    let error = RedisStore::builder().credentials(never).connect(&server.url()).await.expect_err("they never come");
    assert!(error.is_timeout() && start.elapsed() < Duration::from_millis(1_500), "{error:#}: {:?}", start.elapsed());
    let store = RedisStore::builder().credentials(never).lazy().connect(&server.url()).await.expect("the URL is one");
    failure(&store).await;
    let pool = Config::from_url(server.url());
    let pool = pool.create_pool(Some(Runtime::Tokio1)).expect("the URL is one");
    assert!(RedisStore::builder().credentials(never).from_pool(pool).expect_err("of no use").is_invalid());
}

#[test]
fn credentials_do_not_show_their_password() {
    let shown = format!("{:?} {:?}", Credentials::new("ada", "horse"), Vault::default().settings());
    assert!(shown.contains("ada") && !shown.contains("horse"), "{shown}");
}
