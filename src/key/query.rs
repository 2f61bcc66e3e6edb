//! The value of a query parameter.

use http::request::Parts;

use super::{Extracted, KeyExtractor, Kind, ListEntry};
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
        let mut pairs = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let found = pairs.find(|(name, _)| *name == self.name);
        Answer::Ready(found.map(|(_, value)| self.kind.key(value.as_bytes())).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of_named("query", &self.name, |value| str::from_utf8(value).is_ok())
    }
}
