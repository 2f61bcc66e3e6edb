//! The path as the client wrote it.

use http::request::Parts;

use super::{Extracted, KeyExtractor, Kind};
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

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push(parts.uri.path());
    }
}
