//! The same spellings on sockets, by HTTP/1.1 and HTTP/2, and through nginx, as a server hands them on.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::{ListenerExt, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::check::{Choices, Kind, Ledger, Spelling, kinds};
use super::random::{bytes, seed};
use crate::support::nginx::Nginx;
use crate::support::slow::many;

/// Requests of a kind over each protocol, to each server.
const REQUESTS: [usize; 2] = [60, 1_000];

const PATIENCE: Duration = Duration::from_secs(20);

/// The header that says of which kind a request is.
const KIND: &str = "x-kind";

/// What a server found out about each kind, and the first fault.
type Seen = Arc<Mutex<(Vec<Ledger<'static>>, Option<String>)>>;

/// A server that compares what it is handed on; returns its port.
async fn start(kinds: &'static [Kind], seen: Seen) -> u16 {
    let enter = move |request: Request| {
        let number: Option<usize> = request.headers().get(KIND).and_then(|kind| kind.to_str().ok()?.parse().ok());
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (ledgers, fault) = &mut *seen;
        if let Some((ledger, kind)) = number.map(|number| (&mut ledgers[number], &kinds[number]))
            && let Some(parts) = kind.receive(request.map(drop))
            && let Err(found) = ledger.enter(0, &parts)
        {
            fault.get_or_insert(found);
        }
        async {}
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("it is open"));
    tokio::spawn(serve(listener, Router::new().fallback(enter)).into_future());
    port
}

/// Sends a request byte by byte, on a connection of its own.
async fn send_http1(mut stream: TcpStream, Spelling { method, target, lines }: Spelling, kind: usize) {
    let mut head = format!("{method} {target} HTTP/1.1\r\n{KIND}: {kind}\r\nconnection: close\r\n").into_bytes();
    if lines.iter().all(|(name, _)| *name != "host") {
        head.extend(b"host: acme\r\n");
    }
    for (name, value) in &lines {
        head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    // Who answers early may close early.
    let _ = stream.write_all(&head).await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

/// Sends a request whose values are as they are, with white space around, if there can be one.
async fn send_http2(stream: TcpStream, mut spelling: Spelling, kind: usize) {
    if spelling.target.starts_with('/') {
        spelling.target = format!("http://acme{}", spelling.target);
    }
    let Some(mut request) = spelling.request() else { return };
    request.headers_mut().insert(KIND, kind.into());
    let (sender, connection) = h2::client::handshake(stream).await.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    let mut sender: h2::client::SendRequest<bytes::Bytes> = sender.ready().await.expect("there is room");
    if let Ok((response, _)) = sender.send_request(request, true) {
        let _ = response.await;
    }
}

#[track_caller]
fn row(name: &str, front: impl FnOnce(u16) -> u16, is_http2: bool) {
    let (runtime, seed) = (Runtime::new().expect("a runtime"), seed());
    let kinds: &'static [Kind] = kinds().leak();
    let noted = Seen::new(Mutex::new((kinds.iter().map(|kind| Ledger::new(kind, usize::MAX)).collect(), None)));
    let port = front(runtime.block_on(start(kinds, noted.clone())));
    for (number, kind) in kinds.iter().enumerate() {
        for request in 0..many(REQUESTS) {
            let spelling = (kind.spell)(&mut Choices::new(&bytes(seed, request)));
            let what = format!("{name}: {spelling:?} (SEED={seed})");
            let sent = async {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the server listens");
                stream.set_nodelay(true).expect("it is open");
                if is_http2 {
                    send_http2(stream, spelling, number).await;
                } else {
                    send_http1(stream, spelling, number).await;
                }
            };
            runtime.block_on(async { timeout(PATIENCE, sent).await }).expect("the connection ends");
            let fault = noted.lock().expect("no panic").1.take();
            assert_eq!(fault, None, "{what}");
        }
    }
    let ledgers = &noted.lock().expect("no panic").0;
    let tallies = ledgers.iter().map(|ledger| ledger.tally);
    let (requests, keys, certain) = tallies.fold((0, 0, 0), |(requests, keys, certain), tally| {
        (requests + tally.requests, keys + tally.keys, certain + tally.certain)
    });
    assert!(requests > 200 && certain * 5 > keys, "{name}: too little is found out: {requests}, {certain} of {keys}");
}

#[test]
fn no_client_is_served_twice_over_http1() {
    row("HTTP/1.1", |port| port, false);
}

#[test]
fn no_client_is_served_twice_over_http2() {
    row("HTTP/2", |port| port, true);
}

#[test]
fn no_client_is_served_twice_behind_nginx() {
    for (name, is_http2, normalizes) in [
        ("HTTP/1.1 to nginx", false, false),
        ("HTTP/2 to nginx", true, false),
        ("HTTP/1.1 to nginx, which normalizes", false, true),
        ("HTTP/2 to nginx, which normalizes", true, true),
    ] {
        let mut running = None;
        row(name, |port| running.insert(Nginx::start(port)).port(is_http2, normalizes), is_http2);
    }
}
