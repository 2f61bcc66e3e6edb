//! The path as the client wrote it.

use http::request::Parts;
use http::uri::PathAndQuery;

use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::store::Answer;

static KIND: Kind = Kind::fixed("path:");

/// The raw path of the request. See [`path`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Path;

/// Counts by the raw path, without the query.
///
/// Clients choose it: every path they make up starts a counter of its own. Prefer the route.
pub fn path() -> Path {
    Path
}

impl KeyExtractor for Path {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(Extracted::Key(KIND.key(parts.uri.path().as_bytes())))
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("path", is_path)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push(parts.uri.path());
    }
}

/// Whether a request can have this path, which is without the query.
fn is_path(value: &[u8]) -> bool {
    let parsed =
        PathAndQuery::try_from(value).is_ok_and(|path| path.path().as_bytes() == value && path.query().is_none());
    value.is_empty() || (parsed && value.starts_with(b"/")) || value == b"*"
}
