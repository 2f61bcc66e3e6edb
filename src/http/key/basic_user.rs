//! Extracts the user name of basic authentication: <https://www.rfc-editor.org/rfc/rfc7617>.
//!
//! The name is decoded as leniently as any server might, since a client whose name is not read here, but is read by
//! the application, would escape the limit. What only some servers can read is ambiguous. The password is never
//! extracted, compared or stored.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::request::Parts;

use super::authorization::{all, credentials};
use super::reading::{Reading, text};
use super::{Ambiguous, Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;
use crate::lookup::RawValues;

const SCHEME: &str = "Basic";

/// Decodes what any server might decode: what is refused here and accepted there would escape the limit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// An extractor of the user name of `Authorization: Basic`.
///
/// Made by [`basic_user`], which has the rules and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct BasicUser {
    reading: Reading,
}

/// Identifies clients by the user name of `Authorization: Basic`, whatever the password.
///
/// Only a hash of the name leaves the process, unless [`plain`](BasicUser::plain) is set. The password is never used.
/// A request without the header, or with another scheme, has no key; an empty name is a value like any other.
/// Credentials that are not base64, or whose name is not UTF-8, are [ambiguous](Extracted::Ambiguous), as servers
/// differ in how they read them; so are credentials beside another `Authorization` line that differs.
///
/// It suits limits of failed logins. Where the application treats `ADA` and `ada` as one user, set
/// [`ignore_case`](BasicUser::ignore_case). The client chooses the name: each one it makes up starts a counter of its
/// own.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let user = key::basic_user().plain().ignore_case();
///
/// // `Ada:secret`
/// let request = http::Request::get("/").header("authorization", "Basic QWRhOnNlY3JldA==");
/// let (parts, ()) = request.body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = user.extract(&parts) else { panic!("there is a name") };
/// assert_eq!(key.as_str(), "basic_user:ada");
/// # Ok::<(), http::Error>(())
/// ```
pub fn basic_user() -> BasicUser {
    BasicUser { reading: Reading::new("basic_user") }
}

impl BasicUser {
    /// Keeps the name readable in keys, and so in the store, instead of a hash of it.
    ///
    /// A name of more than 64 bytes, escaped, is hashed nevertheless.
    pub fn plain(self) -> Self {
        self.read_as(Reading::plain)
    }

    /// Ignores the case of ASCII letters, for applications that do: names are lower-cased.
    pub fn ignore_case(self) -> Self {
        self.read_as(Reading::ignore_case)
    }

    /// Identifies clients by the result of a function of the name.
    ///
    /// The function must return one result for all names that the application treats as one user, and must return its
    /// own results unchanged: entries of [lists](crate::AccessList) are such results.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// let user = key::basic_user().normalize(|name| match std::str::from_utf8(name) {
    ///     Ok(name) => name.trim().to_lowercase().into_bytes().into(),
    ///     Err(_) => name.into(),
    /// });
    /// # let _ = user;
    /// ```
    pub fn normalize(self, normalize: impl Fn(&[u8]) -> Cow<'_, [u8]> + Send + Sync + 'static) -> Self {
        self.read_as(|reading| reading.normalize(normalize))
    }

    /// Changes how the name is read.
    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading) }
    }

    fn user(&self, parts: &Parts) -> Result<Option<Cow<'static, [u8]>>, Ambiguous> {
        credentials(parts, SCHEME)?.map(|found| self.user_of(found)).transpose()
    }

    /// Returns the user name in credentials, in normal form.
    fn user_of(&self, credentials: &[u8]) -> Result<Cow<'static, [u8]>, Ambiguous> {
        let user = user_in(LENIENT.decode(credentials).map_err(|_| Ambiguous)?);
        if text(&user).is_some() { Ok(self.reading.form(Cow::Owned(user))) } else { Err(Ambiguous) }
    }
}

impl KeyExtractor for BasicUser {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        self.reading.extracted(self.user(parts))
    }

    fn info(&self) -> KeyInfo {
        self.reading.info()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        self.reading.key_of(value, |value| text(value).filter(|name| !name.contains(&b':')))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        match self.user(parts) {
            Ok(user) => offered.push_any(user),
            Err(Ambiguous) => all(parts, SCHEME).for_each(|found| match self.user_of(found) {
                Ok(user) => offered.push(user),
                Err(Ambiguous) => offered.lack(),
            }),
        }
    }
}

/// Returns what is before the first colon, or everything if there is none.
fn user_in(mut decoded: Vec<u8>) -> Vec<u8> {
    let end = decoded.iter().position(|byte| *byte == b':').unwrap_or(decoded.len());
    decoded.truncate(end);
    decoded
}
