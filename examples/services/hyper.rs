//! The layer on hyper alone, without axum: 10 requests a minute for each address.
//!
//! It needs no feature of `tollgate`: `default-features = false` leaves axum out. With some headers left out:
//!
//! ```text
//! $ cargo run -p tollgate-services --example hyper &
//! $ curl -si localhost:3000
//! HTTP/1.1 200 OK
//! ratelimit-policy: "api";q=10;w=60
//! ratelimit: "api";r=9;t=54
//!
//! hello
//! $ curl -so /dev/null 'localhost:3000/[2-10]'; curl -si localhost:3000
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! retry-after: 6
//! ratelimit-policy: "api";q=10;w=60
//! ratelimit: "api";r=0;t=6
//! ```

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tower::{ServiceBuilder, service_fn};

/// The address that `serve` has inserted. With the feature `axum` this is `key::peer_ip()`.
fn peer(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new("hello\n".into()))
}

pub(crate) async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let policy = Policy::new("api", Quota::per_minute(10)).key(peer);
    // Its clones share the counters: one layer for all connections.
    let limits = RateLimitLayer::new(MemoryStore::new(), policy);
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                request
            })
            .layer(limits.clone())
            .service(service_fn(hello));
        tokio::spawn(async move {
            let connection = auto::Builder::new(TokioExecutor::new());
            if let Err(error) =
                connection.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).await
            {
                eprintln!("the connection has failed: {error}");
            }
        });
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    serve(TcpListener::bind("127.0.0.1:3000").await?).await
}
