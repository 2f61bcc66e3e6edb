//! The bearer token.

use http::request::Parts;

use super::authorization::credentials;
use super::list_entry::in_header;
use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::store::Answer;

static KIND: Kind = Kind::fixed("bearer:");

/// The token of `Authorization: Bearer`. See [`bearer`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Bearer;

/// Counts by the token of `Authorization: Bearer`, of which only a hash leaves the process.
///
/// A request without the header, or with another scheme, has no key; an empty token is a value.
///
/// Clients choose it: every token they make up starts a counter of its own, unless something before the
/// layer verified it.
pub fn bearer() -> Bearer {
    Bearer
}

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let token = credentials(parts, "Bearer");
        Answer::Ready(token.map(|token| KIND.hashed(token)).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("bearer", in_header)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(credentials(parts, "Bearer"));
    }
}
