//! What operators read of a layer in the log: few lines, however many requests come.

mod refusals;

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use tollgate::{MemoryStore, Policy, RateLimitLayer};
use tracing::Level;

use crate::support::log::{Log, Noting};

/// What this thread logs.
struct Logged {
    log: Log,
    _noting: Noting,
}

impl Logged {
    fn start() -> Self {
        let log = Log::default();
        Self { _noting: log.note(Level::INFO), log }
    }
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).policies(policies)
}

/// A request for a path from a known peer, with headers.
fn request(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let peer = ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711)));
    let request = Request::builder().uri(path).extension(peer);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}
