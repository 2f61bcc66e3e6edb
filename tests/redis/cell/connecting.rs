//! Connecting, to servers with the module and without.

use std::time::Duration;

use tollgate::Error;
use tollgate::redis_cell::{RedisCellStore, RedisCellStoreBuilder};

use super::rig::{THREE, assert_empty, decide, server, store};
use crate::support::checks::check;
use crate::support::server::RedisServer;

async fn refusal(settings: RedisCellStoreBuilder, url: &str) -> Error {
    settings.connect(url).await.expect_err("it cannot be connected")
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
    let error = refusal(RedisCellStore::builder(), &server.url()).await;
    assert!(error.is_store(), "{error:#}");
    assert_says(&error, &["CL.THROTTLE", "--loadmodule", "RedisStore", &server.port().to_string()]);
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_user_needs_no_more_than_is_documented_and_without_it_is_told_so() {
    let server = server();
    let url = |user: &str| server.url().replace("redis://", &format!("redis://{user}:secret@"));
    let define = |user: &str, rules: &[&str]| {
        let command = [&["ACL", "SETUSER", user, "on", ">secret"], rules].concat();
        let _: String = server.ask(&command);
    };
    define("limiter", &["~tollgate:*", "+cl.throttle", "+del"]);
    let store = RedisCellStore::connect(&url("limiter")).await.unwrap();
    let decided = decide(&store, check("ada", THREE, 1)).await.unwrap();
    assert_eq!(decided.decision.outcomes()[0].remaining(), 2);
    tollgate::store::Store::adjust(&store, &check("ada", THREE, 1).counter, tollgate::store::Change::Reset)
        .wait()
        .await
        .unwrap();

    define("reader", &["~*", "+@read"]);
    let error = refusal(RedisCellStore::builder(), &url("reader")).await;
    assert!(error.is_store(), "{error:#}");
    assert_says(&error, &["may not call CL.THROTTLE", "ACL"]);
    assert!(!format!("{error:#} {error:?}").contains("secret"));
}

#[tokio::test]
async fn a_server_that_is_not_there_or_settings_that_cannot_work_are_told_as_such() {
    let mut server = RedisServer::start();
    server.kill();
    let error = refusal(RedisCellStore::builder(), &server.url()).await;
    assert!(error.is_connection(), "{error:#}");
    assert_says(&error, &["cannot use Redis at 127.0.0.1", "is it running"]);
    for (settings, word) in [
        (RedisCellStore::builder().timeout(Duration::ZERO), "at least 1ms"),
        (RedisCellStore::builder().connect_timeout(Duration::ZERO), "at least 1ms"),
        (RedisCellStore::builder().prefix("a{b"), "without braces"),
        (RedisCellStore::builder().prefix(""), "1 to 64"),
    ] {
        let error = refusal(settings, &server.url()).await;
        assert!(error.is_invalid(), "{error:#}");
        assert_says(&error, &[word]);
    }
    assert!(refusal(RedisCellStore::builder(), "http://127.0.0.1").await.is_invalid());
}

#[tokio::test]
async fn a_replica_is_refused_as_it_can_count_nothing() {
    let (primary, replica) = (server(), server());
    let _: String = replica.ask(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let error = refusal(RedisCellStore::builder(), &replica.url()).await;
    assert!(error.is_connection() || error.is_store(), "{error:#}");
}

#[tokio::test]
async fn connecting_leaves_nothing_behind() {
    let server = server();
    let _store = store(&server).await;
    assert_empty(&server).await;
}
