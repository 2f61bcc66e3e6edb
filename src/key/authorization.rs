//! What the `Authorization` header holds.

use http::header::AUTHORIZATION;
use http::request::Parts;

/// What follows the name of a scheme, whatever its case, in the first `Authorization` header.
pub(super) fn credentials<'a>(parts: &'a Parts, scheme: &str) -> Option<&'a [u8]> {
    let value = parts.headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let end = value.iter().position(u8::is_ascii_whitespace).unwrap_or(value.len());
    let (found, rest) = value.split_at(end);
    found.eq_ignore_ascii_case(scheme.as_bytes()).then(|| rest.trim_ascii())
}
