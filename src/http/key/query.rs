//! The value of a query parameter.

use std::borrow::Cow;

use http::request::Parts;

use super::reading::Reading;
use super::{Ambiguous, Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::core::Answer;

/// The value of a query parameter. See [`query`].
#[derive(Clone, Debug)]
pub struct Query {
    name: String,
    kind: Kind,
    reading: Reading,
}

/// Counts by the value of a query parameter, percent-decoded, `+` being a space.
///
/// A parameter that comes with several values that differ is [ambiguous](Extracted::Ambiguous), unless
/// [`first`](Query::first) or [`last`](Query::last) says which of them the application takes. So is one
/// that has another value where `;` separates parameters as `&` does.
///
/// The value stays readable in the store unless it is long. A request without the parameter has no key;
/// an empty value is a value.
///
/// Clients choose it: every value they make up starts a counter of its own.
pub fn query(name: &str) -> Query {
    Query { name: name.to_owned(), kind: Kind::new(&format!("query {name}")), reading: Reading::default() }
}

impl Query {
    /// Counts by the first of several values: for applications that take it too.
    pub fn first(self) -> Self {
        self.read_as(Reading::first)
    }

    /// Counts by the last of several values, as axum's `Query` of a map does.
    pub fn last(self) -> Self {
        self.read_as(Reading::last)
    }

    /// Takes ASCII letters of either case for the same, as the application does.
    pub fn ignore_case(self) -> Self {
        self.read_as(Reading::ignore_case)
    }

    /// Counts by what a function makes of the decoded value.
    ///
    /// It has to make the same of all that the application takes for the same client, and to leave what it
    /// made as it is: lists of clients have such values.
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        self.read_as(|reading| reading.normalize(normalize))
    }

    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading), ..self }
    }

    /// The values in a piece of the query whose parameters are separated by `&`.
    fn values<'a>(&self, piece: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let pairs = form_urlencoded::parse(piece.as_bytes()).filter(|(name, _)| *name == self.name);
        pairs.map(|(_, value)| self.reading.form(bytes(value)))
    }

    /// The values of a query in which `;` separates parameters, too.
    fn values_by_either<'a>(&self, query: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        query.split(';').flat_map(move |piece| self.values(piece))
    }

    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, [u8]>>, Ambiguous> {
        let query = parts.uri.query().unwrap_or_default();
        if query.contains(';') && !self.values(query).eq(self.values_by_either(query)) {
            return Err(Ambiguous);
        }
        self.reading.pick().of(self.values(query))
    }
}

impl KeyExtractor for Query {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let key = self.value(parts).map(|found| found.map(|value| self.kind.key(&value)));
        Answer::Ready(key.into())
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        let query = parts.uri.query().unwrap_or_default();
        match self.value(parts) {
            Ok(value) => offered.push_any(value),
            Err(Ambiguous) => {
                self.values(query).chain(self.values_by_either(query)).for_each(|value| offered.push(value));
            }
        }
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        let is_text = |value: &[u8]| str::from_utf8(value).is_ok();
        entry.is_of_named("query", &self.name, |value| self.reading.yields(value, is_text))
    }
}

pub(super) fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}
