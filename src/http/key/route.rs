//! The route that matched.

use std::fmt;

use http::request::Parts;

use super::template::{matched, normal};
use super::{Extracted, KeyExtractor, Kind, ListEntry, is_template};
use crate::RawValues;
use crate::core::Answer;

static KIND: Kind = Kind::fixed("route:");

/// What requests share that matched no route: random paths must not make fresh counters.
const UNMATCHED: &str = "<unmatched>";

/// The template of the route that matched.
#[derive(Clone, Copy, Debug)]
struct Route;

/// Counts by the route's template, such as `/users/{id}`.
///
/// Requests that matched no route share one counter. axum knows the route only in layers added with
/// `Router::layer` or `route_layer`, not in those around the whole service.
pub fn route() -> impl KeyExtractor + Copy + fmt::Debug {
    Route
}

impl KeyExtractor for Route {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(Extracted::Key(KIND.key(template(parts).as_bytes())))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push(template(parts));
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("route", |value| str::from_utf8(value).is_ok_and(|text| is_normal(text) || text == UNMATCHED))
    }

    /// Templates are the server's, and stand for no client.
    fn is_proven(&self) -> bool {
        true
    }
}

fn template(parts: &Parts) -> &str {
    matched(parts).unwrap_or(UNMATCHED)
}

fn is_normal(text: &str) -> bool {
    is_template(text) && normal(text) == text
}
