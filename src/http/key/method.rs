//! Extracts the method of the request.
//!
//! Clients may send any token as a method, so only well-known ones have counters of their own.

use std::fmt;

use http::request::Parts;

use super::{Bannable, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;

const KIND: &str = "method";

/// The value that all other methods share: made-up methods must not start fresh counters.
const OTHER: &str = "<other>";

/// The methods of RFC 9110 without HEAD, and PATCH of RFC 5789.
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

/// The extractor that [`method`] returns.
#[derive(Clone, Copy, Debug)]
struct Method;

/// Counts requests by their method, such as `GET`.
///
/// HEAD counts as GET, as it runs the same handler. Methods other than PATCH and those of RFC 9110 share one counter.
/// It is mostly useful as a part of a [joined](KeyExtractor::and) key.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let (parts, ()) = http::Request::head("/").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = key::method().extract(&parts) else { panic!("there is a method") };
/// assert_eq!(key.as_str(), "method:GET");
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn method() -> impl KeyExtractor + Copy + fmt::Debug {
    Method
}

impl KeyExtractor for Method {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(Extracted::Key(key_of(&parts.method)))
    }

    /// A method does not identify a client.
    fn info(&self) -> KeyInfo {
        KeyInfo::new(KIND).bannable(Bannable::Shared).unforgeable()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        match http::Method::from_bytes(value) {
            Ok(method) => Some(key_of(&method)),
            Err(_) => (value == OTHER.as_bytes()).then(|| Key::new(KIND, OTHER)),
        }
    }
}

/// Returns the key of requests with a method.
fn key_of(method: &http::Method) -> Key {
    let method = if method == http::Method::HEAD { &http::Method::GET } else { method };
    Key::new(KIND, if KNOWN.contains(method) { method.as_str() } else { OTHER })
}
