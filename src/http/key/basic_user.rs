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

use super::Ambiguous;
use super::authorization::credentials;
use super::value::{Pick, Source, Value, ValueKey, text};

/// Decodes what any server might decode: what is refused here and accepted there would escape the limit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Identifies clients by the user name of `Authorization: Basic`, whatever the password.
///
/// Only a hash of the name leaves the process, unless [`plain`](ValueKey::plain) is set. The password is never used.
/// A request without the header, or with another scheme, has no key; an empty name is a value like any other.
/// Credentials that are not base64, or whose name is not UTF-8, are [ambiguous](super::Extracted::Ambiguous), as servers
/// differ in how they read them; so are credentials beside another `Authorization` line that differs.
///
/// It suits limits of failed logins. Where the application treats `ADA` and `ada` as one user, set
/// [`ignore_case`](ValueKey::ignore_case). The client chooses the name: each one it makes up starts a counter of its
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
pub fn basic_user() -> ValueKey {
    ValueKey::new(Source::BasicUser, "basic_user")
}

/// Returns the user name that counts, if there is one.
pub(super) fn value<'a>(parts: &Parts, pick: Pick, form: impl Fn(Cow<'a, [u8]>) -> Cow<'a, [u8]>) -> Value<'a> {
    let Some(found) = credentials(parts, "Basic", pick)? else { return Ok(None) };
    let mut user = LENIENT.decode(found).map_err(|_| Ambiguous)?;
    let end = user.iter().position(|byte| *byte == b':').unwrap_or(user.len());
    user.truncate(end);
    if text(&user).is_some() { Ok(Some(form(Cow::Owned(user)))) } else { Err(Ambiguous) }
}
