//! The value of a header.

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

use super::field_value::{is_normal, lines};
use super::reading::Reading;
use super::{Ambiguous, Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::core::Answer;

/// The value of a header. See [`header`].
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    kind: Kind,
    plain: bool,
    reading: Reading,
}

/// Counts by the value of a header, such as an API key.
///
/// White space around the value does not count, and a header with several lines that differ is
/// [ambiguous](Extracted::Ambiguous), unless [`first`](Header::first) or [`last`](Header::last) says which
/// of them the application takes.
///
/// The value is taken for a secret: only a hash of it leaves the process, unless it is declared
/// [`plain`](Header::plain). A request without the header has no key; an empty value is a value.
///
/// # Panics
///
/// If `name` is not a lower-case header name: see [`HeaderName::from_static`].
pub fn header(name: &'static str) -> Header {
    Header::new(HeaderName::from_static(name))
}

impl Header {
    /// As [`header`], for a name known only at run time.
    pub fn new(name: HeaderName) -> Self {
        let kind = Kind::new(&format!("header {name}"));
        Self { name, kind, plain: false, reading: Reading::default() }
    }

    /// Keeps the value readable in the store.
    pub fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Counts by the first of several lines: for applications that take it too.
    pub fn first(self) -> Self {
        self.read_as(Reading::first)
    }

    /// Counts by the last of several lines: for applications that take it too.
    pub fn last(self) -> Self {
        self.read_as(Reading::last)
    }

    /// Takes ASCII letters of either case for the same, as the application does.
    pub fn ignore_case(self) -> Self {
        self.read_as(Reading::ignore_case)
    }

    /// Counts by what a function makes of the value, without white space around it.
    ///
    /// It has to make the same of all that the application takes for the same client, and to leave what it
    /// made as it is: lists of clients have such values.
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        self.read_as(|reading| reading.normalize(normalize))
    }

    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading), ..self }
    }

    fn values<'a>(&self, parts: &'a Parts) -> impl Iterator<Item = Cow<'a, [u8]>> {
        lines(&parts.headers, &self.name).map(|line| self.reading.form(Cow::Borrowed(line)))
    }

    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, [u8]>>, Ambiguous> {
        self.reading.pick().of(self.values(parts))
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let make = if self.plain { Kind::key } else { Kind::hashed };
        let key = self.value(parts).map(|found| found.map(|value| make(&self.kind, &value)));
        Answer::Ready(key.into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of_named("header", self.name.as_str(), |value| self.reading.yields(value, is_normal))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        match self.value(parts) {
            Ok(value) => offered.push_any(value),
            Err(Ambiguous) => self.values(parts).for_each(|value| offered.push(value)),
        }
    }
}
