//! Extracts the value of a header.
//!
//! Values are compared in their [normal form](super::reading). A header with several lines that differ has no
//! certain value unless the application's choice is known, as a client could be counted by one line and served by
//! another.

use std::borrow::Cow;

use http::HeaderName;
use http::request::Parts;

use super::reading::Reading;
use super::reading::{carried, lines};
use super::{Ambiguous, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;
use crate::lookup::RawValues;

/// An extractor of the value of a header.
///
/// Made by [`header`], which has the rules and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct Header {
    name: HeaderName,
    reading: Reading,
}

/// Identifies clients by the value of a header, such as an API key.
///
/// White space around the value is ignored. A header with several lines that differ is
/// [ambiguous](Extracted::Ambiguous), unless [`first`](Header::first) or [`last`](Header::last) states which of them
/// the application reads.
///
/// The value is treated as a secret: only a hash of it leaves the process, unless [`plain`](Header::plain) is set. A
/// request without the header has no key; an empty value is a value like any other.
///
/// The client chooses the value: each one it makes up starts a counter of its own, unless a layer outside of this one
/// has verified it.
///
/// # Panics
///
/// If `name` is not a header name. Its case does not matter.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let region = key::header("x-region").plain();
///
/// let (parts, ()) = http::Request::get("/").header("x-region", "eu").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = region.extract(&parts) else { panic!("there is a header") };
/// assert_eq!(key.as_str(), "header x-region:eu");
///
/// let request = http::Request::get("/").header("x-region", "eu").header("x-region", "us");
/// let (parts, ()) = request.body(())?.into_parts();
/// assert!(matches!(region.extract(&parts), Answer::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
pub fn header(name: &'static str) -> Header {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    Header::new(parsed.unwrap_or_else(|_| panic!("{name:?} is not a header name: use letters, digits and '-'")))
}

impl Header {
    /// Identifies clients by the value of a header, as [`header`] does, for a name that is known only at run time.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::HeaderName;
    /// use tollgate::key::Header;
    ///
    /// let by_api_key = Header::new(HeaderName::from_bytes(b"X-Api-Key")?);
    /// # let _ = by_api_key;
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn new(name: HeaderName) -> Self {
        let reading = Reading::new(&format!("header {name}"));
        Self { name, reading }
    }

    /// Keeps the value readable in keys, and so in the store, instead of a hash of it.
    ///
    /// A value of more than 64 bytes, escaped, is hashed nevertheless.
    pub fn plain(self) -> Self {
        self.read_as(Reading::plain)
    }

    /// Uses the first of several lines, for applications that do.
    pub fn first(self) -> Self {
        self.read_as(Reading::first)
    }

    /// Uses the last of several lines, for applications that do.
    pub fn last(self) -> Self {
        self.read_as(Reading::last)
    }

    /// Ignores the case of ASCII letters, for applications that do: values are lower-cased.
    pub fn ignore_case(self) -> Self {
        self.read_as(Reading::ignore_case)
    }

    /// Identifies clients by the result of a function of the value, which it gets without white space around it.
    ///
    /// The function must return one result for all values that the application treats as one client, and must return
    /// its own results unchanged: entries of [lists](crate::AccessList) are such results.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// // The application ignores leading zeros.
    /// let account = key::header("x-account").normalize(|value| {
    ///     let zeros = value.iter().take_while(|byte| **byte == b'0').count();
    ///     value[zeros..].into()
    /// });
    /// # let _ = account;
    /// ```
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        self.read_as(|reading| reading.normalize(normalize))
    }

    /// Changes how values are read.
    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading), ..self }
    }

    /// Returns the values in normal form, one per line.
    fn values<'a>(&self, parts: &'a Parts) -> impl Iterator<Item = Cow<'a, [u8]>> {
        lines(&parts.headers, &self.name).map(|line| self.reading.form(Cow::Borrowed(line)))
    }

    /// Returns the value that counts, if there is one.
    fn value<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, [u8]>>, Ambiguous> {
        self.reading.pick().of(self.values(parts))
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        self.reading.extracted(self.value(parts))
    }

    fn info(&self) -> KeyInfo {
        self.reading.info()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        self.reading.key_of(value, carried)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        match self.value(parts) {
            Ok(value) => offered.push_any(value),
            Err(Ambiguous) => self.values(parts).for_each(|value| offered.push(value)),
        }
    }
}
