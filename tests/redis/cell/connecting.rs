//! Connecting, to servers with the module and without.

use std::time::Duration;

use tollgate::store::{Change, RedisStoreBuilder, Store};
use tollgate::{Error, Limiter, RedisStore, Rule};
use tollgate_redis_cell::RedisCellStore;

use super::rig::{THREE, server, take};
use crate::support::checks::counter;
use crate::support::server::RedisServer;

async fn refusal(settings: RedisStoreBuilder, url: &str) -> Error {
    let redis = settings.timeout(Duration::from_secs(5)).lazy().connect(url).await.expect("the URL is one");
    RedisCellStore::connect(redis).await.expect_err("it cannot be used")
}

#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "{error} does not say {word:?}");
    }
}

#[tokio::test]
async fn a_server_without_the_module_is_an_error_that_says_how_to_load_it() {
    let server = RedisServer::start();
    let error = refusal(RedisStore::builder(), &server.url()).await;
    assert!(error.is_store(), "{error:#}");
    assert_says(&error, &["CL.THROTTLE", "--loadmodule", "RedisStore"]);
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_user_needs_no_more_than_is_documented_and_without_it_is_told_so() {
    let server = server();
    let url =
        |user: &str, database: &str| server.url().replace("redis://", &format!("redis://{user}:secret@")) + database;
    let define = |user: &str, rules: &[&str]| {
        let command = [&["ACL", "SETUSER", user, "on", ">secret"], rules].concat();
        let _: String = server.ask(&command);
    };
    define("limiter", &["~tollgate:*", "+cl.throttle", "+del"]);
    define("other", &["~shop:*", "+cl.throttle", "+del", "+select"]);
    let rows = [("limiter", "", true, "tollgate"), ("limiter", "", false, "tollgate"), ("other", "/1", true, "shop")];
    for (user, database, lazy, prefix) in rows {
        let settings = RedisStore::builder().timeout(Duration::from_secs(5)).without_scripts().prefix(prefix);
        let settings = if lazy { settings.lazy() } else { settings };
        let store = RedisCellStore::connect(settings.connect(&url(user, database)).await.unwrap()).await.unwrap();
        let decided = take(&store, "ada", 1).await.unwrap();
        assert_eq!(decided.decision.outcomes()[0].remaining(), 2);
        store.adjust(&counter("ada", THREE), Change::Reset).wait().await.unwrap();
    }

    define("reader", &["~*", "+@read"]);
    let error = refusal(RedisStore::builder().without_scripts(), &url("reader", "")).await;
    assert!(error.is_store(), "{error:#}");
    assert_says(&error, &["may not call CL.THROTTLE", "ACL"]);
    assert!(!format!("{error:#} {error:?}").contains("secret"));
}

#[tokio::test]
async fn a_redis_store_without_scripts_decides_no_policies_by_itself() {
    let server = server();
    let redis = RedisStore::builder().without_scripts().connect(&server.url()).await.unwrap();
    let error = Limiter::try_new(redis.clone(), [Rule::new("p", THREE)]).expect_err("it has no scripts");
    assert!(error.is_invalid(), "{error:#}");
    assert_says(&error, &["without_scripts"]);
    assert_eq!(server.scripts(), 0);
}
