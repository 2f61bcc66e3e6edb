//! Extracts the value of a query parameter.
//!
//! Queries are parsed as forms, as axum's `Query` does it. A parameter may come several times, and some servers also
//! split queries at `;`. Where such readings differ, the parameter is ambiguous.

use std::borrow::Cow;

use http::request::Parts;

use super::reading::{Reading, bytes, text};
use super::{Ambiguous, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;
use crate::lookup::RawValues;

/// An extractor of the value of a query parameter.
///
/// Made by [`query`], which has the rules and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct Query {
    name: String,
    reading: Reading,
}

/// Identifies clients by the value of a query parameter.
///
/// Names and values are percent-decoded, and `+` is a space. A parameter that comes with several values that differ is
/// [ambiguous](Extracted::Ambiguous), unless [`first`](Query::first) or [`last`](Query::last) states which of them the
/// application reads. So is one that has another value if `;` separates parameters as `&` does.
///
/// The value stays readable in the store, unless it is longer than 64 bytes, escaped: then it is hashed. A request
/// without the parameter has no key; an empty value is a value like any other.
///
/// The client chooses the value: each one it makes up starts a counter of its own.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let tenant = key::query("tenant");
///
/// let (parts, ()) = http::Request::get("/orders?tenant=acme&page=2").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = tenant.extract(&parts) else { panic!("there is a tenant") };
/// assert_eq!(key.as_str(), "query tenant:acme");
///
/// let (parts, ()) = http::Request::get("/orders?tenant=acme&tenant=eve").body(())?.into_parts();
/// assert!(matches!(tenant.extract(&parts), Answer::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn query(name: &str) -> Query {
    Query { name: name.to_owned(), reading: Reading::new(&format!("query {name}")).plain() }
}

impl Query {
    /// Uses the first of several values, for applications that do.
    pub fn first(self) -> Self {
        self.read_as(Reading::first)
    }

    /// Uses the last of several values, as axum's `Query` of a map does.
    pub fn last(self) -> Self {
        self.read_as(Reading::last)
    }

    /// Ignores the case of ASCII letters, for applications that do: values are lower-cased.
    pub fn ignore_case(self) -> Self {
        self.read_as(Reading::ignore_case)
    }

    /// Identifies clients by the result of a function of the decoded value.
    ///
    /// The function must return one result for all values that the application treats as one client, and must return
    /// its own results unchanged: entries of [lists](crate::AccessList) are such results.
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        self.read_as(|reading| reading.normalize(normalize))
    }

    /// Changes how values are read.
    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading), ..self }
    }

    /// Returns the values in a piece of the query whose parameters are separated by `&`.
    fn values<'a>(&self, piece: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let pairs = form_urlencoded::parse(piece.as_bytes()).filter(|(name, _)| *name == self.name);
        pairs.map(|(_, value)| self.reading.form(bytes(value)))
    }

    /// Returns the values of a query in which `;` separates parameters, too.
    fn values_by_either<'a>(&self, query: &'a str) -> impl Iterator<Item = Cow<'a, [u8]>> {
        query.split(';').flat_map(move |piece| self.values(piece))
    }

    /// Returns the value that counts, if there is one.
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
        self.reading.extracted(self.value(parts))
    }

    fn info(&self) -> KeyInfo {
        self.reading.info()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        self.reading.key_of(value, text)
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
}
