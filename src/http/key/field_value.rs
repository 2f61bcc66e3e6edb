//! The normal form of a header's value, for keys and for whatever policies compare.

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Ambiguous;

/// A value without the optional white space around it, which HTTP/2 keeps and servers of HTTP/1 drop:
/// <https://www.rfc-editor.org/rfc/rfc9110#section-5.5>.
pub(crate) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The values of a header, one a line, in normal form.
pub(crate) fn lines(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &[u8]> {
    headers.get_all(name).iter().map(|line| trimmed(line.as_bytes()))
}

/// The value of a header, if it has one only, however often it says it.
#[cfg_attr(not(feature = "config"), allow(dead_code, reason = "only files compare headers with texts"))]
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Ambiguous> {
    super::reading::same(lines(headers, name))
}

/// Whether a value is in normal form, and a header can carry it.
pub(crate) fn is_normal(value: &[u8]) -> bool {
    trimmed(value) == value && HeaderValue::from_bytes(value).is_ok()
}
