//! The normal form of header values, for keys and for all that policies compare.
//!
//! The same value must be the same key over HTTP/1 and HTTP/2, which differ in whether they keep white space around
//! it. The case and the inside of values are left alone: only the application knows whether they matter.

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Ambiguous;

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
    super::reading::same(lines(headers, name))
}

/// Returns a value in normal form, if a header can carry it.
pub(crate) fn carried(value: &[u8]) -> Option<&[u8]> {
    HeaderValue::from_bytes(value).is_ok().then(|| trimmed(value))
}
