//! Redis behind a Unix socket.

use tollgate::RedisStore;

use crate::stores::{PATIENCE, cut, patient_store, remaining, take, time_to_decide};
use crate::support::server::RedisServer;

/// A server with a socket in its folder, and the path of that.
fn server() -> (RedisServer, String) {
    let server = RedisServer::start_with_settings(&["--unixsocket", "redis.sock", "--unixsocketperm", "700"]);
    let (_, folder): (String, String) = server.ask(&["CONFIG", "GET", "dir"]);
    (server, format!("{folder}/redis.sock"))
}

#[tokio::test]
async fn a_store_decides_over_a_unix_socket_and_comes_back_after_its_connection_was_closed() {
    let (server, path) = server();
    let by_tcp = patient_store(&server).await;
    for scheme in ["redis+unix", "unix", "valkey+unix"] {
        let store = RedisStore::builder().timeout(PATIENCE).connect(&format!("{scheme}://{path}")).await.unwrap();
        let before = remaining(&by_tcp, "ada").await;
        drop(take(&store, "ada", 1).await.unwrap());
        cut(&server);
        time_to_decide(&store, "ada").await;
        assert_eq!(remaining(&by_tcp, "ada").await, before - 2, "{scheme}: one Redis, two ways");
    }
}

#[tokio::test]
async fn a_user_a_password_and_a_database_are_read_from_the_url_of_a_socket() {
    let (server, path) = server();
    let (): () = server.ask(&["ACL", "SETUSER", "ada", "on", ">horse", "~*", "+@all"]);
    let url = format!("redis+unix://{path}?db=3&user=ada&pass=horse");
    drop(take(&RedisStore::connect(&url).await.unwrap(), "ada", 1).await.unwrap());
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
