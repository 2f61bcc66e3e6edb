//! Commands of the application's, on the connections of a store.

use std::error::Error as _;

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::{Cmd, FromRedisValue, RedisError, Value, cmd};

use super::stores::{patient_store, remaining, take};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::RedisServer;

#[tokio::test]
async fn commands_are_sent_beside_decisions_and_their_errors_have_a_source() {
    let server = RedisServer::start();
    let store = patient_store(&server).await;
    drop(take(&store, "ada", 1).await.expect("the server is up"));
    let _ = store.command(cmd("RPUSH").arg("list").arg(&["a", "b"])).await.expect("it is a command");
    let list = store.command(cmd("LRANGE").arg("list").arg(0).arg(-1)).await.expect("it is a list");
    assert_eq!(Vec::<String>::from_redis_value(list).expect("of texts"), ["a", "b"]);
    for wrong in [cmd("GET").arg("list"), &mut cmd("NO"), cmd("EVAL").arg("no Lua").arg(0)] {
        let error = store.command(wrong).await.expect_err("it is wrong");
        let source = error.source().and_then(|source| source.downcast_ref::<RedisError>());
        assert!(error.is_store() && source.is_some(), "{error:#}");
    }
    for name in ["SELECT", "subscribe", "MULTI", "BLPOP", "CLIENT"] {
        assert!(store.command(cmd(name).arg("a")).await.is_err_and(|error| error.is_invalid()), "{name}");
    }
    assert!(store.command(&Cmd::new()).await.is_err_and(|error| error.is_invalid()));
    assert_eq!(remaining(&store, "ada").await, 49, "the connection is as before");
}

#[tokio::test]
async fn a_connection_whose_replies_are_of_another_form_ends() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::builder().connect(&proxy.url()).await.expect("the server was started");
    let is_text = |reply: &Value| matches!(reply, Value::BulkString(_));
    let echo = async || store.command_checked(cmd("ECHO").arg("ada"), is_text).await;
    assert!(echo().await.is_ok());
    proxy.set(Mode::Others);
    assert!(echo().await.is_err_and(|error| error.is_connection()));
    // On the connection on which this began all replies are wrong from then on.
    proxy.set(Mode::Pass);
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    while let Err(error) = echo().await {
        assert!(tokio::time::Instant::now() < end, "{error:#}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
