//! Which of several values counts, the form in which it is compared, and the key that is made of it.
//!
//! The options that headers, cookies, query parameters and user names have in common: `plain`, `first`, `last`,
//! `ignore_case` and `normalize`. Without `first` and `last` all values have to be the same in normal form; otherwise they
//! are ambiguous.
//!
//! The same value must be the same key over HTTP/1 and HTTP/2, which differ in whether they keep white space around
//! it. The case and the inside of values are left alone: only the application knows whether they matter.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Ambiguous, Extracted, Key, KeyInfo, Kind};
use crate::core::Answer;

/// A function that returns the normal form of a value.
type Normalize = dyn Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync;

/// How an extractor reads values, and makes keys of them.
#[derive(Clone)]
pub(crate) struct Reading {
    kind: Kind,
    /// Whether keys hold the value itself, not a hash of it.
    plain: bool,
    pick: Pick,
    /// Whether ASCII letters are lower-cased, after `normalize`.
    ignores_case: bool,
    normalize: Option<Arc<Normalize>>,
}

/// Which of several values counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The one that all of them equal.
    Same,
    First,
    Last,
}

impl Reading {
    /// Creates a reading of values that are secrets.
    pub(super) fn new(kind: &str) -> Self {
        Self { kind: Kind::new(kind), plain: false, pick: Pick::Same, ignores_case: false, normalize: None }
    }

    pub(super) fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    pub(crate) fn first(self) -> Self {
        Self { pick: Pick::First, ..self }
    }

    pub(crate) fn last(self) -> Self {
        Self { pick: Pick::Last, ..self }
    }

    pub(crate) fn ignore_case(self) -> Self {
        Self { ignores_case: true, ..self }
    }

    pub(super) fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        Self { normalize: Some(Arc::new(normalize)), ..self }
    }

    pub(super) fn pick(&self) -> Pick {
        self.pick
    }

    /// Returns the normal form of a value.
    pub(super) fn form<'a>(&self, value: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        let value = match (&self.normalize, value) {
            (None, value) => value,
            (Some(normalize), Cow::Borrowed(value)) => normalize(value),
            (Some(normalize), Cow::Owned(value)) => Cow::Owned(normalize(&value).into_owned()),
        };
        if self.ignores_case && value.iter().any(u8::is_ascii_uppercase) {
            return Cow::Owned(value.to_ascii_lowercase());
        }
        value
    }

    /// Returns the key of a value in normal form.
    fn key(&self, value: &[u8]) -> Key {
        if self.plain { self.kind.key(value) } else { self.kind.hashed(value) }
    }

    /// Returns what is extracted where this value in normal form is found.
    pub(super) fn extracted(&self, found: Result<Option<Cow<'_, [u8]>>, Ambiguous>) -> Answer<Extracted> {
        Answer::Ready(found.map(|value| value.map(|value| self.key(&value))).into())
    }

    pub(super) fn info(&self) -> KeyInfo {
        KeyInfo::new(self.kind.as_str().to_owned())
    }

    /// Returns the key of a value, if requests can have it: `read` returns what an extractor reads of it there.
    pub(super) fn key_of(&self, value: &[u8], read: impl FnOnce(&[u8]) -> Option<&[u8]>) -> Option<Key> {
        // A closure may return what no request can carry.
        let is_result = || self.normalize.is_some() && *self.form(Cow::Borrowed(value)) == *value;
        let value = read(value).or_else(|| is_result().then_some(value))?;
        Some(self.key(&self.form(Cow::Borrowed(value))))
    }
}

impl Pick {
    /// Returns the value that counts, if there is one.
    pub(super) fn of<T: PartialEq>(self, values: impl Iterator<Item = T>) -> Result<Option<T>, Ambiguous> {
        if self == Pick::Same { same(values) } else { Ok(self.one_of(values)) }
    }

    /// Returns the last value for `Last`, otherwise the first.
    pub(super) fn one_of<T>(self, mut values: impl Iterator<Item = T>) -> Option<T> {
        if self == Pick::Last { values.last() } else { values.next() }
    }
}

/// Returns the value that all values equal; they are ambiguous if they differ.
pub(super) fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Result<Option<T>, Ambiguous> {
    let Some(first) = values.next() else { return Ok(None) };
    if values.all(|value| value == first) { Ok(Some(first)) } else { Err(Ambiguous) }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("kind", &self.kind).field("pick", &self.pick).finish_non_exhaustive()
    }
}

/// Returns a value if it is UTF-8.
pub(super) fn text(value: &[u8]) -> Option<&[u8]> {
    str::from_utf8(value).ok().map(str::as_bytes)
}

/// Returns the bytes of a text, without copying it.
#[cfg(any(feature = "axum", feature = "query"))]
pub(super) fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Trims the optional white space around a value, which HTTP/2 keeps and servers of HTTP/1 drop:
/// <https://www.rfc-editor.org/rfc/rfc9110#section-5.5>.
pub(crate) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Returns the values of a header in normal form, one per line.
pub(crate) fn lines(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).iter().map(|line| trimmed(line.as_bytes()))
}

/// Returns the value of a header; it is ambiguous if lines differ.
#[cfg_attr(not(feature = "config"), allow(dead_code, reason = "only files compare headers with texts"))]
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Ambiguous> {
    same(lines(headers, name))
}

/// Returns a value in normal form, if a header can carry it.
pub(crate) fn carried(value: &[u8]) -> Option<&[u8]> {
    HeaderValue::from_bytes(value).is_ok().then(|| trimmed(value))
}
