//! Connecting: what is refused, how soon, and what the error says.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tollgate::store::RedisStoreBuilder;
use tollgate::{Error, RedisStore};

use super::stores::{patient_store, take};
use crate::support::server::RedisServer;

/// Connecting may take 200 ms in these tests, twice: for the connection and for the scripts.
const CONNECT: Duration = Duration::from_millis(200);
const BOUND: Duration = Duration::from_millis(1_500);

async fn refusal(settings: RedisStoreBuilder, url: &str) -> Error {
    let start = Instant::now();
    let error = settings.connect_timeout(CONNECT).connect(url).await.expect_err("it cannot be connected");
    assert!(start.elapsed() < BOUND, "{error:#} took {:?}", start.elapsed());
    error
}

/// Checks that a text says all of these.
#[track_caller]
fn assert_says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_a_connection_error_that_names_the_address() {
    let mut server = RedisServer::start();
    server.kill();
    let error = refusal(RedisStore::builder(), &server.url()).await;
    assert!(error.is_connection(), "{error:#}");
    assert_says(&error, &["cannot use Redis", &format!("127.0.0.1:{}", server.port()), "is it running"]);
    assert!(std::error::Error::source(&error).is_some(), "the cause is kept");
}

#[tokio::test]
async fn a_wrong_password_is_a_connection_error_that_does_not_tell_it() {
    let server = RedisServer::start_with_password("correct-horse");
    for url in [server.url().replace("correct-horse", "battery-staple"), server.url().replace(":correct-horse@", "")] {
        let error = refusal(RedisStore::builder(), &url).await;
        assert!(error.is_connection(), "{error:#}");
        assert_says(&error, &["password", "127.0.0.1"]);
        assert!(!format!("{error:#} {error:?}").contains("battery"), "{error:?}");
    }
    drop(take(&patient_store(&server).await, "right", 1).await.unwrap());
}

/// A server that is no Redis: it answers whatever it is asked with the same text, if any.
async fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    tokio::spawn(async move {
        let mut kept = Vec::new();
        for _ in 0..100 {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let _ = stream.write_all(answer).await;
            kept.push(stream);
        }
    });
    format!("redis://{address}")
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_told_from_one_in_time() {
    for answer in
        [&b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"[..], b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\0"]
    {
        let error = refusal(RedisStore::builder(), &impostor(answer).await).await;
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
        assert_says(&error, &["cannot use Redis at 127.0.0.1:"]);
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let error = refusal(RedisStore::builder(), &impostor(b"").await).await;
    assert!(error.is_timeout() || error.is_connection(), "{error:#}");
    assert_says(&error, &["cannot use Redis at 127.0.0.1:"]);
}

#[tokio::test]
async fn a_server_that_answers_with_errors_only_is_refused() {
    let mut errors = Vec::new();
    (0..20).for_each(|_| errors.extend(b"-ERR unknown command\r\n"));
    let error = refusal(RedisStore::builder(), &impostor(errors.leak()).await).await;
    assert!(error.is_connection() || error.is_timeout(), "{error:#}");
}

#[tokio::test]
async fn what_is_no_redis_url_is_invalid_and_the_error_shows_one() {
    for url in
        ["", "127.0.0.1:6379", "http://127.0.0.1:6379", "redis://", "redis://127.0.0.1:port", "redis://127.0.0.1/x"]
    {
        let error = refusal(RedisStore::builder(), url).await;
        assert!(error.is_invalid(), "{url:?}: {error:#}");
        assert_says(&error, &["redis://", "host:port"]);
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_invalid_and_the_error_says_what_can() {
    let server = RedisServer::start();
    let long = "x".repeat(65);
    for (settings, words) in [
        (RedisStore::builder().pool_size(0), ["0 connections", "1 to 65536"]),
        (RedisStore::builder().batch_size(0), ["0 checks", "1 to 128"]),
        (RedisStore::builder().batch_size(129), ["129 checks", "1 to 128"]),
        (RedisStore::builder().timeout(Duration::ZERO), ["0", "at least 1ms"]),
        (RedisStore::builder().prefix(""), ["\"\"", "1 to 64"]),
        (RedisStore::builder().prefix("a{b"), ["a{b", "without braces"]),
        (RedisStore::builder().prefix("a b"), ["a b", "printable"]),
        (RedisStore::builder().prefix("a\r\nb"), ["a\\r\\nb", "printable"]),
        (RedisStore::builder().prefix(&long), ["xxxxx", "1 to 64"]),
    ] {
        let error = refusal(settings, &server.url()).await;
        assert!(error.is_invalid(), "{error:#}");
        assert_says(&error, &words);
    }
    let error = RedisStore::builder().connect_timeout(Duration::ZERO).connect(&server.url()).await.unwrap_err();
    assert!(error.is_invalid(), "{error:#}");
}

#[tokio::test]
async fn the_longest_timeouts_are_no_panic() {
    let server = RedisServer::start();
    let settings = RedisStore::builder().connect_timeout(Duration::MAX).timeout(Duration::MAX);
    let store = settings.connect(&server.url()).await.unwrap();
    drop(take(&store, "patient", 1).await.unwrap());
}
