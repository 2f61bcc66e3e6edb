//! Who a request is counted as: the client behind proxies, and the other keys.

mod bans;
mod by_hand;
mod client;
mod garbage;
mod keys;
mod parsed;
mod peers;
mod routed;

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use futures::FutureExt;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use tollgate::key::{Extracted, KeyExtractor};

/// The head of a request with repeated lines of one header.
fn head(name: &str, lines: &[impl AsRef<[u8]>]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    for line in lines {
        let name: HeaderName = name.parse().expect("a header name");
        parts.headers.append(name, HeaderValue::from_bytes(line.as_ref()).expect("a header value"));
    }
    parts
}

/// The same from a peer.
fn head_from(peer: &str, name: &str, lines: &[impl AsRef<[u8]>]) -> Parts {
    let mut parts = head(name, lines);
    parts.extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().expect("an address"), 4711)));
    parts
}

/// The text of the key that an extractor finds, or what it answers instead.
fn text(key: &impl KeyExtractor, parts: &Parts) -> String {
    match key.extract(parts).wait().now_or_never() {
        Some(Extracted::Key(key)) => key.to_string(),
        Some(Extracted::Secret(secret)) => secret.key().to_string(),
        Some(Extracted::Missing) => "missing".to_owned(),
        Some(Extracted::Ambiguous) => "ambiguous".to_owned(),
        Some(Extracted::Rejected(response)) => format!("rejected with {}", response.status().as_u16()),
        other => panic!("no answer: {other:?}"),
    }
}
