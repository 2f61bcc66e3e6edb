//! Extracts the route that matched.
//!
//! Unlike the path, a route is the server's: there are as many counters as routes, whatever clients send.

use std::fmt;

use http::request::Parts;

use super::template::{matched, normal};
use super::{Bannable, Extracted, Key, KeyExtractor, KeyInfo, Kind, is_template};
use crate::core::Answer;
use crate::lookup::RawValues;

static KIND: Kind = Kind::fixed("route:");

/// The value that all requests share that matched no route: random paths must not start fresh counters.
const UNMATCHED: &str = "<unmatched>";

/// The extractor that [`route`] returns.
#[derive(Clone, Copy, Debug)]
struct Route;

/// Counts requests by the template of their route, such as `/users/{id}`.
///
/// Requests that matched no route share one counter. axum sets the route only in layers that are added with
/// `Router::layer` or `route_layer`, not in those around the whole service: there all requests share that counter.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::key::{self, KeyExtractor};
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
///
/// // 60 requests per minute for each client and route.
/// let policy = Policy::new("route", Quota::per_minute(60)).key(key::client_ip().and(key::route()));
/// let app: Router = Router::new()
///     .route("/users/{id}", get(|| async {}))
///     .layer(RateLimitLayer::new(MemoryStore::new(), policy));
/// # let _ = app;
/// ```
#[must_use]
pub fn route() -> impl KeyExtractor + Copy + fmt::Debug {
    Route
}

impl KeyExtractor for Route {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(Extracted::Key(KIND.key(template(parts).as_bytes())))
    }

    /// Templates are the server's, and do not identify a client.
    fn info(&self) -> KeyInfo {
        let info = KeyInfo::new("route").bannable(Bannable::Shared).unforgeable();
        KeyInfo { needs_route: true, ..info }
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let text = str::from_utf8(value).ok()?;
        (is_template(text) || text == UNMATCHED).then(|| KIND.key(normal(text).as_bytes()))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push(template(parts));
    }
}

/// Returns the template of the route, or [`UNMATCHED`].
fn template(parts: &Parts) -> &str {
    matched(parts).unwrap_or(UNMATCHED)
}
