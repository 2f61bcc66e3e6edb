//! The List fields of others, without the feature `merge-headers`: they are not read, only distinguished from older
//! drafts.
//!
//! A line of this draft begins with a quoted name. Lines of the older drafts begin with a word or a number, and are
//! dropped as with the feature, since clients would ignore a line in two syntaxes.

use std::borrow::Cow;

use http::HeaderValue;

/// Returns a line as it is if it is of this draft, by how it begins.
pub(super) fn members<'a>(line: &'a [u8], _: &str) -> Option<Cow<'a, [u8]>> {
    line.trim_ascii_start().starts_with(b"\"").then_some(Cow::Borrowed(line))
}

/// Returns that each line of `RateLimit` leaves what is not known, unless the number is beside it, in
/// `X-RateLimit-Remaining`: that one decides then.
pub(super) fn left<'a>(
    lines: impl Iterator<Item = &'a HeaderValue>,
    _: bool,
    is_beside: bool,
) -> impl Iterator<Item = Option<u64>> {
    lines.filter(move |_| !is_beside).map(|_| None)
}
