//! Redis behind a Unix socket.

use std::time::Duration;

use tollgate::store::Ask;
use tollgate::store::Store;
use tollgate::{Quota, RedisStore};

use crate::support::checks::check;
use crate::support::server::RedisServer;

const FIFTY: Quota = Quota::token_bucket(50, Duration::from_secs(86_400));

/// A server with a socket in its folder, and the path of that.
fn server() -> (RedisServer, String) {
    let server = RedisServer::start_with_settings(&["--unixsocket", "redis.sock", "--unixsocketperm", "700"]);
    let (_, folder): (String, String) = server.ask(&["CONFIG", "GET", "dir"]);
    (server, format!("{folder}/redis.sock"))
}

async fn remaining(store: &RedisStore, cost: u64) -> Result<u64, tollgate::Error> {
    store
        .decide(&[check("ada", FIFTY, cost)], Ask::default())
        .wait()
        .await
        .map(|decided| decided.decision.outcomes()[0].remaining())
}

#[tokio::test]
async fn a_store_decides_over_a_unix_socket_and_comes_back_after_its_connection_was_closed() {
    let (server, path) = server();
    let settings = || RedisStore::builder().timeout(Duration::from_secs(10));
    let by_tcp = settings().connect(&server.url()).await.unwrap();
    for scheme in ["redis+unix", "unix", "valkey+unix"] {
        let store = settings().connect(&format!("{scheme}://{path}")).await.unwrap();
        let before = remaining(&by_tcp, 0).await.unwrap();
        assert_eq!(remaining(&store, 1).await.unwrap(), before - 1, "{scheme}: one Redis, two ways");
    }
    let store = settings().connect(&format!("unix://{path}")).await.unwrap();
    for _ in 0..3 {
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let mut again = remaining(&store, 0).await;
        for _ in 0..100 {
            if again.is_ok() {
                break;
            }
            again = remaining(&store, 0).await;
        }
        assert_eq!(again.unwrap(), 47);
    }
}

#[tokio::test]
async fn a_user_a_password_and_a_database_are_read_from_the_url_of_a_socket() {
    let (server, path) = server();
    let (): () = server.ask(&["ACL", "SETUSER", "ada", "on", ">horse", "~*", "+@all"]);
    let url = format!("redis+unix://{path}?db=3&user=ada&pass=horse");
    remaining(&RedisStore::connect(&url).await.unwrap(), 1).await.unwrap();
    let keyspace: String = server.ask(&["INFO", "keyspace"]);
    assert!(keyspace.contains("db3:keys=1") && !keyspace.contains("db0"), "{keyspace}");
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    assert!(clients.contains("user=ada"), "{clients}");
    let error = RedisStore::connect(&url.replace("horse", "mule")).await.expect_err("the password is wrong");
    assert!(error.is_connection() && !format!("{error:#} {error:?}").contains("mule"), "{error:?}");
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_a_connection_error_that_names_it() {
    let error = RedisStore::connect("unix:///nowhere/redis.sock").await.expect_err("there is no such file");
    assert!(error.is_connection() && error.to_string().contains("/nowhere/redis.sock"), "{error:#}");
}
