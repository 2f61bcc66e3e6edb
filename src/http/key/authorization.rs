//! Credentials in the `Authorization` header: the [bearer token](https://www.rfc-editor.org/rfc/rfc6750#section-2.1),
//! and the [user name of basic authentication](https://www.rfc-editor.org/rfc/rfc7617).
//!
//! Applications differ in which of several lines they read, and proxies join lines with commas. So there is a result
//! only if every application would read the same one. Nothing here verifies credentials: they only identify the sender.

use std::borrow::Cow;
use std::fmt;

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::extracted::{Ambiguous, Extracted};
use super::reading::{Choices, Pick, Value, carried, lines, text, trimmed};
use super::{KeyExtractor, KeyInfo};
use crate::core::{Key, KeyKind, MaybeFuture};

const SCHEME: &str = "Bearer";

static KIND: KeyKind = KeyKind::fixed("bearer:");

#[derive(Clone, Copy, Debug)]
pub(super) struct Bearer;

/// Identifies clients by the token of `Authorization: Bearer`. Only a hash of the token leaves the process.
///
/// A request without the header, or with another scheme, has no key. An empty token is a value like any other. A token
/// with white space, a comma or characters outside of ASCII is [ambiguous](Extracted::Ambiguous). A token is also
/// ambiguous if another `Authorization` line differs.
///
/// The client chooses the token: each invented token starts its own counter, unless an outer layer has verified it.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let request = http::Request::get("/").header("authorization", "Bearer s3cret");
/// let (parts, ()) = request.body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = key::bearer().extract(&parts) else { panic!("there is a token") };
/// assert!(key.as_str().starts_with("bearer:#") && !key.as_str().contains("s3cret"));
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn bearer() -> impl KeyExtractor + Copy + fmt::Debug {
    Bearer
}

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(token(parts).map(|found| found.map(|token| KIND.hashed(token))).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("bearer")
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        carried(value).filter(|token| is_one(token)).map(|token| KIND.hashed(token))
    }
}

pub(super) fn token(parts: &Parts) -> Result<Option<&[u8]>, Ambiguous> {
    credentials(parts, SCHEME, Pick::Same)
}

/// Returns the credentials of a scheme. The case of the scheme is ignored.
///
/// Several lines are ambiguous if one has the scheme and another line differs, unless `pick` selects a line, because
/// applications read the first line, the last line or neither. Credentials are also ambiguous
///
/// - with white space or a comma inside, because they may be joined lines,
/// - after another scheme in the same line,
/// - with non-ASCII characters around them, because applications may treat these as white space.
fn credentials<'a>(parts: &'a Parts, scheme: &str, pick: Pick) -> Result<Option<&'a [u8]>, Ambiguous> {
    let lines = || lines(&parts.headers, AUTHORIZATION);
    // A proxy may have joined lines.
    let separates = |byte: &u8| *byte == b',' || !byte.is_ascii();
    let is_joined = |line: &[u8]| line.split(separates).skip(1).any(|part| after(trimmed(part), scheme).is_some());
    match pick.pick(lines().map(|line| after(line, scheme)))?.flatten() {
        Some(found) if is_one(found) => Ok(Some(found)),
        None if !lines().any(is_joined) => Ok(None),
        _ => Err(Ambiguous),
    }
}

fn is_one(credentials: &[u8]) -> bool {
    !credentials.iter().any(|byte| b" \t,".contains(byte) || !byte.is_ascii())
}

fn after<'a>(line: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let end = line.iter().position(|byte| b" \t".contains(byte) || !byte.is_ascii()).unwrap_or(line.len());
    let (found, rest) = line.split_at(end);
    found.eq_ignore_ascii_case(scheme.as_bytes()).then(|| trimmed(rest))
}

/// Decodes as leniently as any server might, because a client whose name only the application can read would escape the
/// limit. Names that only some servers can read are ambiguous.
pub(super) fn user_value<'a>(choices: &'a Choices, parts: &Parts) -> Value<'a> {
    let Some(found) = credentials(parts, "Basic", choices.pick)? else { return Ok(None) };
    let mut user = decoded(found).ok_or(Ambiguous)?;
    let end = user.iter().position(|byte| *byte == b':').unwrap_or(user.len());
    user.truncate(end);
    if text(&user).is_some() { Ok(Some(choices.form(Cow::Owned(user)))) } else { Err(Ambiguous) }
}

/// Source: <https://www.rfc-editor.org/rfc/rfc4648#section-4>. Padding and surplus bits do not matter.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        _ => text,
    };
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for (place, digit) in group.iter().enumerate() {
            bits |= sextet(*digit)? << (26 - 6 * place);
        }
        // A single base64 digit is less than a byte.
        let length = group.len().checked_sub(1).filter(|length| *length > 0)?;
        bytes.extend_from_slice(&bits.to_be_bytes()[..length]);
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u32> {
    let (first, value) = match digit {
        b'A'..=b'Z' => (b'A', 0),
        b'a'..=b'z' => (b'a', 26),
        b'0'..=b'9' => (b'0', 52),
        b'+' => (b'+', 62),
        b'/' => (b'/', 63),
        _ => return None,
    };
    Some(u32::from(digit - first + value))
}
