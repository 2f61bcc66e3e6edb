//! Connecting: what is refused, how soon, and why.

use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tollgate::store::RedisStoreBuilder;
use tollgate::{Error, RedisStore};

use super::stores::{PATIENCE, patient_store, remaining, take, time_to_decide};
use crate::support::server::RedisServer;

/// Connecting may take 200 ms in these tests, twice: for the connection and for the scripts.
const CONNECT: Duration = Duration::from_millis(200);
const BOUND: Duration = Duration::from_secs(4);

async fn refusal(settings: RedisStoreBuilder, url: &str) -> Error {
    let start = Instant::now();
    let error = settings.connect(url).await.expect_err("it cannot be connected");
    assert!(start.elapsed() < BOUND, "{error:#} took {:?}", start.elapsed());
    error
}

#[tokio::test]
async fn each_cause_is_named_in_the_error_and_no_secret_is() {
    let (locked, open, mut gone) =
        (RedisServer::start_with_password("horse"), RedisServer::start(), RedisServer::start());
    gone.kill();
    let unknown = "redis://no-such-host.invalid:6379".to_owned();
    let mut rows = vec![
        (locked.url().replace("horse", "staple"), "WRONGPASS", "password"),
        (locked.url().replace(":horse@", ""), "NOAUTH", "password"),
        (gone.url(), "Connection refused", "is it running"),
        (unknown, "failed to lookup address", "no-such-host.invalid"),
    ];
    if cfg!(feature = "tls") {
        rows.push((open.url().replace("redis://", "rediss://"), "only one side may use TLS", "127.0.0.1"));
    }
    for (url, cause, advice) in rows {
        let error = refusal(RedisStore::builder().connect_timeout(Duration::from_secs(1)), &url).await;
        let address = url.rsplit(['@', '/']).next().expect("it has one");
        for word in ["cannot use Redis", address, advice] {
            assert!(error.to_string().contains(word), "{error} does not say {word:?}");
        }
        assert!(error.is_connection() || cause.contains("TLS") && error.is_timeout(), "{error:?}");
        assert!(!format!("{error:?}").contains("staple"), "{error:?}");
        assert!(format!("{error:#}").contains(cause), "{error:#} does not name {cause:?}");
        assert!(!format!("{error:#}").contains("staple") && !format!("{error:#}").contains(char::is_control));
    }
    drop(take(&patient_store(&locked).await, "right", 1).await.expect("the password is right"));
}

/// A server that is no Redis: it answers whatever it is asked with the same text, if any.
fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    let address = listener.local_addr().expect("a listener has an address");
    thread::spawn(move || {
        let answered = |mut stream: std::net::TcpStream| stream.write_all(answer).map(|()| stream);
        let _kept: Vec<_> = listener.incoming().flatten().take(100).map(answered).collect();
    });
    format!("redis://{address}")
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_given_up_in_time() {
    let http = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let errors = b"-ERR unknown command\r\n".repeat(20).leak();
    for answer in [&http[..], b"SSH-2.0-OpenSSH_9.2\r\n", b"\0\0\0\0", b"", errors] {
        let error = refusal(RedisStore::builder().connect_timeout(CONNECT), &impostor(answer)).await;
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
        assert!(error.to_string().contains("cannot use Redis at 127.0.0.1:"), "{error}");
    }
}

#[tokio::test]
async fn what_can_never_work_is_invalid_for_lazy_stores_too_and_the_error_says_what_can() {
    type Set = fn(RedisStoreBuilder) -> RedisStoreBuilder;
    let server = RedisServer::start();
    let urls = ["", "127.0.0.1:6379", "http://127.0.0.1:6379", "redis://", "redis://127.0.0.1:port", "redis://a/x"];
    let settings: [(Set, [&str; 2]); 10] = [
        (|set| set.pool_size(0), ["0 connections", "1 to 65536"]),
        (|set| set.batch_size(0), ["0 checks", "1 to 128"]),
        (|set| set.batch_size(129), ["129 checks", "1 to 128"]),
        (|set| set.timeout(Duration::ZERO), ["0", "at least 1ms"]),
        (|set| set.connect_timeout(Duration::ZERO), ["0", "1ms"]),
        (|set| set.prefix(""), ["\"\"", "1 to 64"]),
        (|set| set.prefix("a{b"), ["a{b", "without braces"]),
        (|set| set.prefix("a b"), ["a b", "printable"]),
        (|set| set.prefix("a\r\nb"), ["a\\r\\nb", "printable"]),
        (|set| set.prefix("x".repeat(65)), ["xxxxx", "1 to 64"]),
    ];
    let of_urls = urls.map(|url| ((|set| set) as Set, url.to_owned(), ["redis://", "host:port"]));
    for (set, url, words) in of_urls.into_iter().chain(settings.map(|(set, words)| (set, server.url(), words))) {
        for settings in [RedisStore::builder(), RedisStore::builder().lazy()] {
            let error = refusal(set(settings), &url).await;
            assert!(error.is_invalid() && words.iter().all(|word| error.to_string().contains(word)), "{url}: {error}");
        }
    }
}

#[test]
fn a_lazy_store_is_made_outside_a_runtime_and_asks_nothing_until_it_decides() {
    let server = RedisServer::start();
    let store = RedisStore::builder()
        .timeout(PATIENCE)
        .lazy()
        .connect(&server.url())
        .now_or_never()
        .expect("it does not wait")
        .expect("the URL is one");
    let connections = || server.ask::<String>(&["CLIENT", "LIST"]).lines().count() - 1;
    // Those by which the test asked before may not have ended yet; one of the store would stay.
    assert!((0..100).any(|_| connections() == 0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("one can be built");
    runtime.block_on(async {
        drop(take(&store, "ada", 1).await.expect("the first decision connects"));
        assert_eq!((remaining(&store, "ada").await, connections()), (49, 1));
    });
}

#[tokio::test]
async fn a_lazy_store_that_was_made_while_redis_was_away_decides_once_it_is_there() {
    let mut server = RedisServer::start();
    server.kill();
    for settings in [RedisStore::builder(), RedisStore::builder().functions()] {
        settings.connect(&server.url()).await.expect_err("it is away");
    }
    let store = RedisStore::builder().lazy().connect(&server.url()).await.expect("the URL is one");
    for _ in 0..3 {
        let error = take(&store, "ada", 1).await.expect_err("it is away");
        assert!(error.is_connection() || error.is_timeout(), "{error:#}");
    }
    server.restart();
    let waited = time_to_decide(&store, "ada").await;
    assert!(waited.as_millis() < 1_000, "{waited:?}");
}
