//! A server that takes no more clients.

use std::io::{Read, Write};
use std::net::TcpStream;

use tollgate::deadpool_redis::redis::{Client, cmd};

use super::rig::{assert_keeps, assert_returns, connect, failure, kept};
use crate::support::server::RedisServer;

/// As many clients as the server takes.
fn crowd(port: u16) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..100 {
        let (mut client, mut answer) = (TcpStream::connect(("127.0.0.1", port)).expect("it listens"), [0; 1]);
        if client.write_all(b"PING\r\n").is_err() || client.read_exact(&mut answer).is_err() || answer != *b"+" {
            return crowd;
        }
        crowd.push(client);
    }
    panic!("the server takes more clients than it was told to");
}

#[tokio::test]
async fn a_server_with_too_many_clients_fails_decisions_in_time_until_some_leave() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await;
    assert_returns(&store).await;
    let before = kept(&server);
    let mut control = Client::open(server.url()).and_then(|client| client.get_connection()).expect("it answers");
    for _ in 0..3 {
        cmd("CONFIG").arg(&["SET", "maxclients", "10"]).exec(&mut control).expect("the command is right");
        cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut control).expect("it is right");
        let crowd = crowd(server.port());
        assert_eq!(crowd.len(), 9);
        // The first finds its connection closed, the others find no place for a new one.
        failure(&store).await;
        for _ in 0..10 {
            let told = failure(&store).await;
            assert!(told.contains("Connection") && told.contains("cannot connect to Redis"), "{told}");
        }
        drop(crowd);
        assert_returns(&store).await;
    }
    drop(control);
    assert_keeps(&server, before).await;
}
