//! Commands of the application's, on the connections of a store.

use std::error::Error as _;

use tollgate::deadpool_redis::redis::{Cmd, FromRedisValue, RedisError, cmd};

use super::stores::{patient_store, remaining, take};
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
