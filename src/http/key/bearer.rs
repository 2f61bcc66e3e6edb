//! The bearer token.

use std::fmt;

use http::request::Parts;

use super::authorization::{all, credentials, is_one, separates};
use super::field_value::is_normal;
use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::core::Answer;

const SCHEME: &str = "Bearer";

static KIND: Kind = Kind::fixed("bearer:");

/// The token of `Authorization: Bearer`.
#[derive(Clone, Copy, Debug)]
struct Bearer;

/// Counts by the token of `Authorization: Bearer`, of which only a hash leaves the process.
///
/// A request without the header, or with another scheme, has no key; an empty token is a value. A token
/// with white space or a comma inside is [ambiguous](Extracted::Ambiguous), and so is one beside another
/// line of `Authorization` that differs.
///
/// Clients choose it: every token they make up starts a counter of its own, unless something before the
/// layer verified it.
pub fn bearer() -> impl KeyExtractor + Copy + fmt::Debug {
    Bearer
}

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let token = credentials(parts, SCHEME);
        Answer::Ready(token.map(|found| found.map(|token| KIND.hashed(token))).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("bearer", |value| is_normal(value) && is_one(value))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        if let Ok(token) = credentials(parts, SCHEME) {
            return offered.push_any(token);
        }
        let tokens = all(parts, SCHEME).flat_map(|found| found.split(|byte| separates(*byte)));
        tokens.filter(|token| !token.is_empty()).for_each(|token| offered.push(token));
    }
}
