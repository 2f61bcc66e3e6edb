//! Peers of servers other than axum's: hyper, which inserts what it is told to.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tollgate::{Policy, Quota, key};
use tower::ServiceExt;

use crate::rig::layer;
use crate::sockets::Http;

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
    let limits = layer([Policy::new("two", Quota::per_hour(2)).key(key::peer_ip())]);
    let server = tokio::spawn(hyper(listener, Router::new().route("/", get(async || "hello")).layer(limits)));
    for peer in ["127.0.0.1", "127.0.0.2"] {
        for expected in [200, 200, 429] {
            assert_eq!(Http::from(peer).get(format!("http://{address}/")).await.status(), expected, "{peer}");
        }
    }
    server.abort();
}
