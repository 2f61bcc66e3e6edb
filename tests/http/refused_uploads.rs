//! Requests with bodies that are refused before the body was sent: clients see the response.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures::stream;
use http::request::Builder;
use http::{Method, Request, Version};
use http_body::{Body, Frame};
use http_body_util::StreamBody;
use tollgate::policy::MissingKey;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Rule, key};
use tollgate_shed::{Class, FleetShedLayer, WorkerShedLayer};
use tower::{Layer, ServiceExt};

use crate::rig::{hello, request, send};
use crate::sockets::Server;
use crate::support::doubles::unavailable;
use crate::support::soon::soon;

const LARGE: usize = 10_000_000;
/// What Java's client sends with each first request, as it would rather speak HTTP/2.
const H2C: &str = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__";
const MINUTE: Duration = Duration::from_secs(60);

/// Refuses every request.
fn refusing() -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Policy::new("uploads", Quota::per_hour(10)).cost_by(|_| 11))
}

fn app() -> Router {
    Router::new().route("/", post(async |body: Bytes| body.len().to_string()))
}

/// Sends a head, and all of a body, before it reads. Returns the connection, and the response without its body.
fn upload(address: SocketAddr, headers: &str, body: &[u8]) -> std::io::Result<(TcpStream, String)> {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(MINUTE)).expect("a timeout");
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n");
    socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(body))?;
    head_of(&mut socket).map(|head| (socket, head))
}

/// Reads a response, and returns its head in lower case.
fn head_of(socket: &mut TcpStream) -> std::io::Result<String> {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4_096];
        let length = socket.read(&mut bytes)?;
        text += &String::from_utf8_lossy(&bytes[..length]).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert_ne!(length, 0, "the connection ended within {text:?}");
            continue;
        };
        let size = head.split_once("content-length: ").and_then(|(_, size)| size.lines().next()?.parse().ok());
        if size.is_none_or(|size: usize| body.len() >= size) {
            return Ok(head.to_owned());
        }
    }
}

fn length(size: usize) -> String {
    format!("content-length: {size}")
}

/// A shedder that sheds requests of this class.
fn shedding() -> WorkerShedLayer {
    let clock = ManualClock::new();
    let worker = WorkerShedLayer::measured("worker", || 1.0).clock(clock.clone()).classify(|_| Class::Test);
    let sampled = worker.layer(hello());
    for _ in 0..15 {
        clock.advance(Duration::from_secs(10));
        send(&sampled, request());
    }
    worker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_serves_the_next_request_where_this_one_may_be_read_to_its_end_and_else_says_that_it_closes() {
    let server = Server::start(app().layer(refusing())).await;
    let address = server.address;
    let bytes = |size| vec![b'x'; size];
    let chunk = [b"2710\r\n", &*bytes(10_000), b"\r\n"].concat();
    let chunks = [&*chunk.repeat(LARGE / 10_000), b"0\r\n\r\n"].concat();
    // A client that waits for 100 Continue is not asked for the body.
    let waits = |size| length(size) + "\r\nexpect: 100-continue";
    let rows = [
        (length(0), bytes(0), false),
        (length(100), bytes(100), false),
        (length(60_000), bytes(60_000), false),
        (length(LARGE), bytes(LARGE), false),
        (length(2 * LARGE), bytes(60_000), true),
        (length(LARGE) + "\r\n" + H2C, bytes(LARGE), false),
        ("transfer-encoding: chunked".to_owned(), chunks, true),
        (waits(100), bytes(0), true),
        (waits(LARGE), bytes(0), true),
    ];
    let all = tokio::task::spawn_blocking(move || {
        for (headers, body, closes) in rows {
            let (mut socket, head) = upload(address, &headers, &body).expect("a response");
            assert!(head.starts_with("http/1.1 429"), "{headers}: {head}");
            assert_eq!(head.contains("connection: close"), closes, "{headers}: {head}");
            if closes {
                let mut rest = String::new();
                socket.read_to_string(&mut rest).expect("no reset");
                assert!(!rest.contains("HTTP/1.1"), "{headers}: {rest}");
            } else {
                write!(socket, "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").expect("it is open");
                assert!(head_of(&mut socket).expect("a response").starts_with("http/1.1 429"), "{headers}");
            }
        }
    });
    soon(all).await.expect("no panic");
}

/// The response to a request that is refused.
async fn refused(
    app: Router,
    request: Builder,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Response {
    let request = request.body(axum::body::Body::new(body)).expect("a request");
    app.oneshot(request).await.expect("a response")
}

#[tokio::test(start_paused = true)]
async fn only_what_a_client_of_http1_may_still_send_is_read_whoever_refuses() {
    let post = || Request::post("/");
    let limited = || app().layer(refusing());
    let by_user = Policy::new("uploads", Quota::per_hour(10)).key(key::header("x-user")).missing_key(MissingKey::Deny);
    let users = || RateLimitLayer::new(MemoryStore::new(), by_user.clone());
    let deny = RateLimitLayer::new(unavailable(), Policy::new("all", Quota::per_hour(1))).on_failure(OnFailure::Deny);
    let store = MemoryStore::new();
    let slots = Limiter::new(store.clone(), [Rule::new("fleet.others", Quota::concurrency(1))]);
    let _slots = slots.acquire(&Key::new("global", "")).await.expect("a decision").1;
    let fleet = FleetShedLayer::new(store, "fleet", Quota::concurrency(2), 0.5);
    for (app, request, status, is_read) in [
        (limited(), post(), 429, true),
        (limited(), post().version(Version::HTTP_10), 429, true),
        (limited(), post().version(Version::HTTP_2), 429, false),
        (limited(), post().version(Version::HTTP_3), 429, false),
        (limited(), post().header("expect", "100-continue"), 429, false),
        (limited(), post().header("upgrade", "h2c"), 429, true),
        (limited(), post().method(Method::CONNECT), 429, false),
        (app().layer(refusing().drain_denied(0, MINUTE)), post(), 429, false),
        (app().layer(users()), post(), 403, true),
        (app().layer(users()), post().header("x-user", "ada").header("x-user", "bob"), 400, true),
        (app().layer(deny), post(), 503, true),
        (app().layer(fleet), post(), 503, true),
        (app().layer(shedding()), post(), 503, true),
    ] {
        let what = format!("{status} {request:?}");
        let is_multiplexed = request.version_ref().is_some_and(|version| *version >= Version::HTTP_2);
        let was_read = Arc::new(AtomicBool::new(false));
        let read = Arc::clone(&was_read);
        let never = stream::poll_fn(move |_| {
            read.store(true, Ordering::SeqCst);
            Poll::<Option<Result<Frame<Bytes>, _>>>::Pending
        });
        let response = refused(app, request, StreamBody::new(never)).await;
        assert_eq!(response.status(), status, "{what}");
        assert_eq!(response.headers().contains_key("connection"), !is_multiplexed, "{what}");
        // The client sends nothing for 2 s.
        tokio::time::sleep(Duration::from_millis(1_900)).await;
        assert_eq!((was_read.load(Ordering::SeqCst), Arc::strong_count(&was_read) > 1), (is_read, is_read), "{what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(Arc::strong_count(&was_read), 1, "{what}");
    }
}

#[tokio::test]
async fn a_body_that_is_always_ready_leaves_its_thread_to_others_and_is_read_for_a_time_only() {
    let (counted, start) = (Arc::new(()), Instant::now());
    let counting = Arc::clone(&counted);
    let frames = stream::repeat_with(move || {
        // Or else a layer that keeps reading would never let this test fail.
        assert!(Arc::strong_count(&counting) > 0 && start.elapsed() < Duration::from_secs(20));
        Ok(Frame::data(Bytes::new()))
    });
    let layer = refusing().drain_denied(1 << 20, Duration::from_millis(100));
    refused(app().layer(layer), Request::post("/"), StreamBody::new(frames)).await;
    while Arc::strong_count(&counted) > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_body_is_read_within_bounds_of_bytes_and_time_which_are_16_mebibytes_and_30_seconds_by_default() {
    const NONE: Duration = Duration::ZERO;
    let ms = Duration::from_millis;
    for (layer, pause, size, expected) in [
        (refusing(), NONE, 1 << 20, 17),
        (refusing(), ms(1_000), 1, 30),
        (refusing().drain_denied(1_000_000, MINUTE), NONE, 1 << 16, 16),
        (refusing().drain_denied(16 << 20, ms(300)), ms(5), 1, 60),
        (refusing().drain_denied(0, MINUTE), ms(5), 1, 0),
        (refusing().drain_denied(16 << 20, NONE), ms(5), 1, 0),
    ] {
        let read = Arc::new(AtomicUsize::new(0));
        let frames = stream::unfold(Arc::clone(&read), move |read| async move {
            tokio::time::sleep(pause).await;
            read.fetch_add(1, Ordering::SeqCst);
            Some((Ok(Frame::data(Bytes::from(vec![0; size]))), read))
        });
        let response = refused(app().layer(layer), Request::post("/"), StreamBody::new(frames)).await;
        assert_eq!(response.headers()["connection"], "close");
        tokio::time::sleep(MINUTE).await;
        let frames = read.load(Ordering::SeqCst);
        assert!(frames == expected || frames + 1 == expected, "{frames} frames of {size} bytes, each after {pause:?}");
        assert_eq!(Arc::strong_count(&read), 1, "the body is dropped");
    }
}
