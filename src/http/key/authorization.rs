//! Credentials in the `Authorization` header: <https://www.rfc-editor.org/rfc/rfc9110#section-11.4>.
//!
//! [`bearer`](super::bearer) and [`basic_user`](super::basic_user) extract theirs here. The head of a
//! request and the name of a scheme come in; the text after that name goes out, or that it is ambiguous. Applications
//! differ in which of several lines they read, and proxies join lines with commas. So there is one result only where
//! every reader would see the same one.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::Ambiguous;
use super::reading::{Pick, lines, trimmed};

/// Returns what follows the name of a scheme in the `Authorization` header; the case of the name is ignored.
///
/// Several lines are ambiguous if one has the scheme and another differs from it, unless one of them is picked:
/// applications read the first line, the last one or neither. So are credentials with white space or a comma inside, which may be those of several
/// lines, and those that follow credentials of another scheme in their line.
pub(super) fn credentials<'a>(parts: &'a Parts, scheme: &str, pick: Pick) -> Result<Option<&'a [u8]>, Ambiguous> {
    let found = pick.of(each(parts, scheme))?.flatten();
    let is_certain = match found {
        Some(found) => is_one(found),
        None => appended(parts, scheme).next().is_none(),
    };
    if is_certain { Ok(found) } else { Err(Ambiguous) }
}

/// Returns what follows the name of the scheme after a comma, where a proxy may have joined lines.
fn appended<'a>(parts: &'a Parts, scheme: &str) -> impl Iterator<Item = &'a [u8]> {
    let joined = lines(&parts.headers, AUTHORIZATION).flat_map(|line| line.split(|byte| *byte == b',').skip(1));
    joined.filter_map(move |piece| after(trimmed(piece), scheme))
}

/// Whether these credentials are certainly those of one line: nothing in them separates.
pub(super) fn is_one(credentials: &[u8]) -> bool {
    !credentials.iter().any(|byte| b" \t,".contains(byte))
}

/// Returns the credentials of each line; `None` for a line of another scheme.
fn each<'a>(parts: &'a Parts, scheme: &str) -> impl Iterator<Item = Option<&'a [u8]>> {
    lines(&parts.headers, AUTHORIZATION).map(move |line| after(line, scheme))
}

/// Returns the rest of a line that begins with the name of the scheme.
fn after<'a>(line: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let (found, rest) = line.split_at(end);
    found.eq_ignore_ascii_case(scheme.as_bytes()).then(|| trimmed(rest))
}
