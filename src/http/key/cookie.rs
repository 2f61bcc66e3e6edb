//! The value of a cookie.

use std::borrow::Cow;

use http::request::Parts;

use super::cookie_pairs::{Found, is_normal, named};
use super::reading::{self, Pick, Reading};
use super::{Ambiguous, Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::core::Answer;

/// The value of a cookie. See [`cookie`].
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
    kind: Kind,
    plain: bool,
    reading: Reading,
}

/// Counts by the value of a cookie, such as a session.
///
/// Names and values are percent-decoded; double quotes and white space around a value do not count. A
/// cookie with several values that differ is [ambiguous](Extracted::Ambiguous), unless
/// [`first`](Cookie::first) or [`last`](Cookie::last) says which of them the application takes: browsers
/// send several where one is set on two paths or domains. So is a value that is not UTF-8, has a quote on
/// one side only, or has a backslash in quotes.
///
/// The value is taken for a secret: only a hash of it leaves the process, unless it is declared
/// [`plain`](Cookie::plain). A request without the cookie has no key; an empty value is a value.
///
/// Clients choose it: every value they make up starts a counter of its own, unless something before the
/// layer verified it.
pub fn cookie(name: &str) -> Cookie {
    let kind = Kind::new(&format!("cookie {name}"));
    Cookie { name: name.to_owned(), kind, plain: false, reading: Reading::default() }
}

impl Cookie {
    /// Keeps the value readable in the store.
    pub fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Counts by the first of several, as Go's `Request.Cookie` and Rack take it.
    ///
    /// Where servers differ in which one that is, as some decode names and some leave out what is not
    /// well-formed, the cookie is ambiguous if the others differ from it.
    pub fn first(self) -> Self {
        self.read_as(Reading::first)
    }

    /// Counts by the last of several, as axum-extra's `CookieJar` takes it.
    ///
    /// Where servers differ in which one that is, as some decode names and some leave out what is not
    /// well-formed, the cookie is ambiguous if the others differ from it.
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

    fn value<'a>(&'a self, parts: &'a Parts) -> Result<Option<Cow<'a, [u8]>>, Ambiguous> {
        let all = || named(parts, self.name.as_bytes());
        let picked = match self.reading.pick() {
            Pick::Same => None,
            pick => pick.one_of(all()).filter(Found::is_seen_by_all),
        };
        let form = |found: Found<'a>| found.value.map(|value| self.reading.form(value));
        let value = picked.map_or_else(|| reading::same(all().map(form)), |found| Ok(Some(form(found))))?;
        value.map(|value| value.ok_or(Ambiguous)).transpose()
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let make = if self.plain { Kind::key } else { Kind::hashed };
        let key = self.value(parts).map(|found| found.map(|value| make(&self.kind, &value)));
        Answer::Ready(key.into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of_named("cookie", &self.name, |value| self.reading.yields(value, is_normal))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        if let Ok(value) = self.value(parts) {
            return offered.push_any(value);
        }
        for found in named(parts, self.name.as_bytes()) {
            if let Some(value) = found.value {
                offered.push(self.reading.form(value));
            } else {
                offered.push(found.sent());
                offered.lack();
            }
        }
    }
}
