//! Passwords that change while stores are connected.

use crate::rig::{assert_keeps, assert_returns, connect, failure, kept, take};
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
    take(&store).await.expect("the connection that there is stays");
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
