//! Extracts the value of a cookie.
//!
//! Servers differ in how they read cookies: which of several they take, whether they decode names and values, what
//! they drop as malformed. The key is a value only where all of them read that one; otherwise it is ambiguous, so that
//! a client cannot be counted by one value and served by another. The pairs come from
//! [`cookie_pairs`](super::cookie_pairs).

use std::borrow::Cow;

use http::request::Parts;

use super::cookie_pairs::{Found, bare, named};
use super::reading::{self, Pick, Reading, text};
use super::{Ambiguous, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;
use crate::lookup::RawValues;

/// An extractor of the value of a cookie.
///
/// Made by [`cookie`], which has the rules and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct Cookie {
    name: String,
    reading: Reading,
}

/// Identifies clients by the value of a cookie, such as a session.
///
/// Names and values are percent-decoded; double quotes and white space around a value are ignored. The case of the
/// name matters. A cookie with several values that differ is [ambiguous](Extracted::Ambiguous), unless
/// [`first`](Cookie::first) or [`last`](Cookie::last) states which of them the application reads: browsers send
/// several values if a cookie is set for two paths or domains. So is a value that is not UTF-8, that has a quote on
/// one side only, or that has a backslash in quotes.
///
/// The value is treated as a secret: only a hash of it leaves the process, unless [`plain`](Cookie::plain) is set. A
/// request without the cookie has no key; an empty value is a value like any other.
///
/// The client chooses the value: each one it makes up starts a counter of its own, unless a layer outside of this one
/// has verified it.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let theme = key::cookie("theme").plain();
///
/// let (parts, ()) = http::Request::get("/").header("cookie", "id=7; theme=dark").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = theme.extract(&parts) else { panic!("there is a cookie") };
/// assert_eq!(key.as_str(), "cookie theme:dark");
///
/// let (parts, ()) = http::Request::get("/").header("cookie", "theme=dark; theme=light").body(())?.into_parts();
/// assert!(matches!(theme.extract(&parts), Answer::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn cookie(name: &str) -> Cookie {
    Cookie { name: name.to_owned(), reading: Reading::new(&format!("cookie {name}")) }
}

impl Cookie {
    /// Keeps the value readable in keys, and so in the store, instead of a hash of it.
    ///
    /// A value of more than 64 bytes, escaped, is hashed nevertheless.
    pub fn plain(self) -> Self {
        self.read_as(Reading::plain)
    }

    /// Uses the first of several values, as Go's `Request.Cookie` and Rack do.
    ///
    /// Servers may differ in which one that is, as some decode names and some drop what is malformed. Where they do,
    /// the cookie is ambiguous if the other values differ from it.
    pub fn first(self) -> Self {
        self.read_as(Reading::first)
    }

    /// Uses the last of several values, as axum-extra's `CookieJar` does.
    ///
    /// Servers may differ in which one that is, as some decode names and some drop what is malformed. Where they do,
    /// the cookie is ambiguous if the other values differ from it.
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
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// // `s:<session>.<signature>`: the session stays the same when the signature is renewed.
    /// let session = key::cookie("sid").normalize(|value| {
    ///     value.split(|byte| *byte == b'.').next().unwrap_or(value).into()
    /// });
    /// # let _ = session;
    /// ```
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        self.read_as(|reading| reading.normalize(normalize))
    }

    /// Changes how values are read.
    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading), ..self }
    }

    /// Returns the value in normal form, if there is one and all servers read it.
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
        self.reading.extracted(self.value(parts))
    }

    fn info(&self) -> KeyInfo {
        self.reading.info()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        self.reading.key_of(value, |value| text(value).map(bare))
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
