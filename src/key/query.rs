//! The value of a query parameter.

use std::borrow::Cow;

use http::request::Parts;

use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::store::Answer;

/// The first value of a query parameter. See [`query`].
#[derive(Clone, Debug)]
pub struct Query {
    name: String,
    kind: Kind,
}

/// Counts by the first value of a query parameter, percent-decoded, `+` being a space.
///
/// The value stays readable in the store unless it is long. A request without the parameter has no key;
/// an empty value is a value.
///
/// Clients choose it: every value they make up starts a counter of its own.
pub fn query(name: &str) -> Query {
    Query { name: name.to_owned(), kind: Kind::new(&format!("query {name}")) }
}

impl KeyExtractor for Query {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(self.value(parts).map(|value| self.kind.key(value.as_bytes())).into())
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(self.value(parts).as_deref());
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of_named("query", &self.name, |value| str::from_utf8(value).is_ok())
    }
}

impl Query {
    fn value<'a>(&self, parts: &'a Parts) -> Option<Cow<'a, str>> {
        let mut pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        pairs.find(|(name, _)| *name == self.name).map(|(_, value)| value)
    }
}
