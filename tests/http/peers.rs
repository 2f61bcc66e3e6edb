//! Peers of servers other than axum's: hyper, which inserts what it is told to, and proxies at a Unix socket.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};
use tollgate::key::{self, KeyExtractor};
use tollgate::test_util::ManualClock;
use tollgate::{Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use crate::support::soon::soon;
use crate::support::time::memory;

/// Two requests an hour for each key.
fn app(key: impl KeyExtractor) -> Router {
    let policy = Policy::new("two", Quota::per_hour(2)).key(key);
    Router::new().route("/", get(async || "hello")).layer(RateLimitLayer::new(memory(&ManualClock::new()), policy))
}

/// Sends a request on a connection of its own.
async fn status(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, client: Option<&str>) -> u16 {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
    tokio::spawn(connection);
    let mut request = Request::get("/").header("host", "test");
    if let Some(client) = client {
        request = request.header("x-forwarded-for", client);
    }
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    soon(sender.send_request(request)).await.expect("a response").status().as_u16()
}

/// Serves with hyper alone, and inserts the peer's address as it is.
async fn hyper(listener: TcpListener, app: Router) {
    loop {
        let (stream, peer) = listener.accept().await.expect("a connection");
        let app = app.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert::<SocketAddr>(peer);
            app.clone().oneshot(request)
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

#[tokio::test]
async fn a_hyper_server_that_inserts_the_address_counts_each_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
    let address = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(hyper(listener, app(key::peer_ip())));
    for peer in ["127.0.0.1:0", "127.0.0.2:0"] {
        for expected in [200, 200, 429] {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(peer.parse().expect("an address")).expect("an address of the loopback device");
            let stream = soon(socket.connect(address)).await.expect("the server listens");
            assert_eq!(status(stream, None).await, expected, "{peer}");
        }
    }
    server.abort();
}

#[tokio::test]
async fn over_a_unix_socket_the_forwarded_client_counts() {
    let folder = std::env::temp_dir().join(format!("tollgate-{}-{:x}", std::process::id(), fastrand::u64(..)));
    std::fs::create_dir(&folder).expect("a folder of its own");
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let app = app(key::client_ip().trusted_unix_socket());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    for client in ["203.0.113.1", "198.51.100.66, 203.0.113.2"] {
        for expected in [200, 200, 429] {
            let stream = soon(UnixStream::connect(&path)).await.expect("the server listens");
            assert_eq!(status(stream, Some(client)).await, expected, "{client}");
        }
    }
    server.abort();
    std::fs::remove_dir_all(&folder).expect("the folder is there");
}
