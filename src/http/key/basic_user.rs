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
use super::reading::{Pick, Value, text};

/// Decodes what any server might decode: what is refused here and accepted there would escape the limit.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Returns the user name that counts, if there is one.
pub(super) fn value<'a>(parts: &Parts, pick: Pick, form: impl Fn(Cow<'a, [u8]>) -> Cow<'a, [u8]>) -> Value<'a> {
    let Some(found) = credentials(parts, "Basic", pick)? else { return Ok(None) };
    let mut user = LENIENT.decode(found).map_err(|_| Ambiguous)?;
    let end = user.iter().position(|byte| *byte == b':').unwrap_or(user.len());
    user.truncate(end);
    if text(&user).is_some() { Ok(Some(form(Cow::Owned(user)))) } else { Err(Ambiguous) }
}
