//! The user name of basic authentication.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::request::Parts;

use super::authorization::{all, credentials};
use super::reading::Reading;
use super::{Ambiguous, Extracted, Key, KeyExtractor, ListEntry};
use crate::RawValues;
use crate::core::Answer;

const SCHEME: &str = "Basic";

/// Reads what any server might: what it refused and the server took would escape the limit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The user name of `Authorization: Basic`. See [`basic_user`].
#[derive(Clone, Debug, Default)]
pub struct BasicUser {
    plain: bool,
    reading: Reading,
}

/// Counts by the user name of `Authorization: Basic`, whatever the password.
///
/// Only a hash of the name leaves the process, unless it is declared [`plain`](BasicUser::plain). The
/// password is never looked at. A request without the header, or with another scheme, has no key; an
/// empty name is a value. Credentials that are not base64, or whose name is not UTF-8, are
/// [ambiguous](Extracted::Ambiguous), as servers read them in ways of their own; so are those beside
/// another line of `Authorization` that differs.
///
/// It fits limits of failed logins. Where the application takes `ADA` for `ada`, say
/// [`ignore_case`](BasicUser::ignore_case). Clients choose the name: every one they make up starts a
/// counter of its own.
pub fn basic_user() -> BasicUser {
    BasicUser::default()
}

impl BasicUser {
    /// Keeps the name readable in the store.
    pub fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Takes ASCII letters of either case for the same, as the application does.
    pub fn ignore_case(self) -> Self {
        self.read_as(Reading::ignore_case)
    }

    /// Counts by what a function makes of the name.
    ///
    /// It has to make the same of all that the application takes for the same user, and to leave what it
    /// made as it is: lists of clients have such names.
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

    pub(crate) fn read_as(self, change: impl FnOnce(Reading) -> Reading) -> Self {
        Self { reading: change(self.reading), ..self }
    }

    fn user(&self, parts: &Parts) -> Result<Option<Cow<'static, [u8]>>, Ambiguous> {
        credentials(parts, SCHEME)?.map(|found| self.user_of(found)).transpose()
    }

    /// The user of credentials, in normal form.
    fn user_of(&self, credentials: &[u8]) -> Result<Cow<'static, [u8]>, Ambiguous> {
        let user = user_in(LENIENT.decode(credentials).map_err(|_| Ambiguous)?);
        if str::from_utf8(&user).is_ok() { Ok(self.reading.form(Cow::Owned(user))) } else { Err(Ambiguous) }
    }

    fn key_of(&self, user: &[u8]) -> Key {
        const KIND: &str = "basic_user";
        if self.plain { Key::new(KIND, user) } else { Key::hashed(KIND, user) }
    }
}

impl KeyExtractor for BasicUser {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let key = self.user(parts).map(|found| found.map(|user| self.key_of(&user)));
        Answer::Ready(key.into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        let is_name = |value: &[u8]| !value.contains(&b':') && str::from_utf8(value).is_ok();
        entry.is_of("basic_user", |value| self.reading.yields(value, is_name))
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

/// What stands before the first colon, or all.
fn user_in(mut decoded: Vec<u8>) -> Vec<u8> {
    let end = decoded.iter().position(|byte| *byte == b':').unwrap_or(decoded.len());
    decoded.truncate(end);
    decoded
}
