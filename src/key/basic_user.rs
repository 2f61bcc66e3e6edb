//! The user name of basic authentication.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::request::Parts;

use super::authorization::credentials;
use super::{Extracted, Key, KeyExtractor, ListEntry};
use crate::RawValues;
use crate::store::Answer;

/// Reads what any server might: what it refused and the server took would escape the limit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The user name of `Authorization: Basic`. See [`basic_user`].
#[derive(Clone, Copy, Debug, Default)]
pub struct BasicUser {
    plain: bool,
}

/// Counts by the user name of `Authorization: Basic`, whatever the password.
///
/// Only a hash of the name leaves the process, unless it is declared [`plain`](BasicUser::plain). The
/// password is never looked at. A request without the header, with another scheme, or with credentials
/// that are not base64 has no key; an empty name is a value.
///
/// It fits limits of failed logins. Clients choose the name: every one they make up starts a counter of
/// its own.
pub fn basic_user() -> BasicUser {
    BasicUser::default()
}

impl BasicUser {
    /// Keeps the name readable in the store.
    pub fn plain(self) -> Self {
        Self { plain: true }
    }

    fn key_of(self, user: &[u8]) -> Key {
        const KIND: &str = "basic_user";
        if self.plain { Key::new(KIND, user) } else { Key::hashed(KIND, user) }
    }
}

impl KeyExtractor for BasicUser {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(decoded(parts).map(|decoded| self.key_of(user(&decoded))).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("basic_user", |value| !value.contains(&b':'))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(decoded(parts).as_deref().map(user));
    }
}

fn decoded(parts: &Parts) -> Option<Vec<u8>> {
    credentials(parts, "Basic").and_then(|text| LENIENT.decode(text).ok())
}

/// What stands before the first colon, or all.
fn user(decoded: &[u8]) -> &[u8] {
    decoded.split(|byte| *byte == b':').next().unwrap_or_default()
}
