//! The method of the request.

use std::fmt;

use http::request::Parts;

use super::{Extracted, Key, KeyExtractor, ListEntry};
use crate::core::Answer;

/// What all other methods share: made-up ones must not make fresh counters.
const OTHER: &str = "<other>";

/// The methods of RFC 9110 but HEAD, and PATCH.
const KNOWN: [http::Method; 8] = [
    http::Method::GET,
    http::Method::POST,
    http::Method::PUT,
    http::Method::PATCH,
    http::Method::DELETE,
    http::Method::OPTIONS,
    http::Method::CONNECT,
    http::Method::TRACE,
];

/// The method of the request.
#[derive(Clone, Copy, Debug)]
struct Method;

/// Counts by the method, such as `GET`.
///
/// HEAD counts as GET, whose handler it runs. Methods other than those of RFC 9110 and PATCH share one
/// counter.
pub fn method() -> impl KeyExtractor + Copy + fmt::Debug {
    Method
}

impl KeyExtractor for Method {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let method = if parts.method == http::Method::HEAD { &http::Method::GET } else { &parts.method };
        let text = if KNOWN.contains(method) { method.as_str() } else { OTHER };
        Answer::Ready(Extracted::Key(Key::new("method", text)))
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        let known =
            |value: &[u8]| value == OTHER.as_bytes() || KNOWN.iter().any(|known| known.as_str().as_bytes() == value);
        entry.is_of("method", known)
    }

    /// It stands for no client.
    fn is_proven(&self) -> bool {
        true
    }
}
