//! A web server with a limit, and its clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use futures::FutureExt;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::sleep;
use tollgate::{Key, OnFailure, Policy, RateLimitHandle, RateLimitLayer, RedisStore, key};

use crate::others::Tally;
use crate::rig::{AMPLE, Rig, current_thread, ms};
use crate::support::slow::many;

/// How long a handler keeps its thread: a password is hashed, say.
const WORK: Duration = ms(150);
const CLIENTS: usize = 16;
const SPAN: [Duration; 2] = [ms(1_200), ms(2_500)];

/// A layer that shows each failure as a 503.
pub(crate) fn layer(store: &RedisStore) -> RateLimitLayer {
    let policy = Policy::new("user", AMPLE).key(key::header("x-api-key")).metered();
    RateLimitLayer::new(store.clone(), policy).on_failure(OnFailure::Deny)
}

/// Serves in the background; returns the address.
pub(crate) fn serve(rig: &Rig, layer: RateLimitLayer) -> SocketAddr {
    let app = Router::new().route("/", get(async || "hello")).route("/blocks", get(blocks));
    let app = app.route("/charges", get(charges)).route("/checks", get(checks)).layer(layer);
    let listener = rig.runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    rig.runtime.spawn(async move { axum::serve(listener, app).await });
    address
}

async fn blocks() -> &'static str {
    thread::sleep(WORK);
    "done"
}

async fn charges(Extension(limits): Extension<RateLimitHandle>) -> &'static str {
    limits.charge(1);
    // Sent, and not waited for.
    let _ = limits.flush().now_or_never();
    blocks().await
}

async fn checks(Extension(limits): Extension<RateLimitHandle>) -> &'static str {
    let decision = limits.check(&Policy::new("account", AMPLE), &Key::new("account", "ada")).await;
    assert!(decision.is_ok(), "{decision:?}");
    blocks().await
}

/// What becomes of requests to `/` while one client, on a thread of its own, asks for `path` again
/// and again. The others are tasks of the server's runtime, and rest between two requests: while all
/// workers rest but the one that works in line, nobody reads sockets and minds timers.
pub(crate) fn ask_beside(path: &'static str, address: SocketAddr, runtime: &Runtime, rest: Duration) -> Tally {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let neighbour = thread::spawn(move || {
        let ask = async {
            let mut stream = connect(address).await;
            while !stopped.load(Ordering::Relaxed) {
                exchange(&mut stream, path, "neighbour").await;
            }
        };
        current_thread().block_on(ask);
    });
    let clients = (0..CLIENTS).map(|client| runtime.spawn(ask_until(address, client, rest)));
    let tallies = runtime.block_on(join_all(clients.collect::<Vec<_>>()));
    stop.store(true, Ordering::Relaxed);
    neighbour.join().expect("the neighbour is answered");
    tallies.into_iter().map(|tally| tally.expect("no client fails")).fold(Tally::default(), Tally::and)
}

async fn ask_until(address: SocketAddr, client: usize, rest: Duration) -> Tally {
    let (mut stream, mut tally) = (connect(address).await, Tally::default());
    let (user, end) = (format!("client-{client}"), Instant::now() + many(SPAN));
    while Instant::now() < end {
        let start = Instant::now();
        let status = exchange(&mut stream, "/", &user).await;
        let answer = if status == 200 { Ok(()) } else { Err(format!("status {status}")) };
        tally.add((start.elapsed(), answer));
        if !rest.is_zero() {
            sleep(rest).await;
        }
    }
    tally
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket has this option");
    stream
}

/// Sends one request and reads its answer to the end; returns the status.
async fn exchange(stream: &mut TcpStream, path: &str, user: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nx-api-key: {user}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = Vec::new();
    while !is_whole(&answer) {
        let read = stream.read_buf(&mut answer).await.expect("the server answers");
        assert_ne!(read, 0, "the server closed the connection");
    }
    let status = answer.get(9..12).and_then(|status| std::str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()).expect("a status")
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(head) = answer.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    answer.len() >= head + 4 + length.unwrap_or(0)
}
