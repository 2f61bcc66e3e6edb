//! What the `Authorization` header holds.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::field_value::{lines, trimmed};
use super::{Ambiguous, reading};

/// What follows the name of a scheme, whatever its case, in the `Authorization` header.
///
/// Several lines are ambiguous if one has the scheme and another says something else: applications take
/// the first, the last or neither. So are credentials with white space or a comma inside, which may be
/// those of several lines, and those that follow others of another scheme in their line.
pub(super) fn credentials<'a>(parts: &'a Parts, scheme: &str) -> Result<Option<&'a [u8]>, Ambiguous> {
    let found = reading::same(each(parts, scheme))?.flatten();
    let is_certain = match found {
        Some(found) => is_one(found),
        None => appended(parts, scheme).next().is_none(),
    };
    if is_certain { Ok(found) } else { Err(Ambiguous) }
}

/// What follows the name of the scheme in each line that has it.
pub(super) fn all<'a>(parts: &'a Parts, scheme: &str) -> impl Iterator<Item = &'a [u8]> {
    each(parts, scheme).flatten().chain(appended(parts, scheme))
}

/// What follows the name of the scheme after a comma, where a proxy joined lines.
fn appended<'a>(parts: &'a Parts, scheme: &str) -> impl Iterator<Item = &'a [u8]> {
    let joined = lines(&parts.headers, AUTHORIZATION).flat_map(|line| line.split(|byte| *byte == b',').skip(1));
    joined.filter_map(move |piece| after(trimmed(piece), scheme))
}

/// Whether these are the credentials of one line.
pub(super) fn is_one(credentials: &[u8]) -> bool {
    !credentials.iter().any(|byte| separates(*byte))
}

/// Whether a byte stands between credentials, or between them and a scheme.
pub(super) fn separates(byte: u8) -> bool {
    b" \t,".contains(&byte)
}

fn each<'a>(parts: &'a Parts, scheme: &str) -> impl Iterator<Item = Option<&'a [u8]>> {
    lines(&parts.headers, AUTHORIZATION).map(move |line| after(line, scheme))
}

fn after<'a>(line: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let end = line.iter().position(|byte| b" \t".contains(byte)).unwrap_or(line.len());
    let (found, rest) = line.split_at(end);
    found.eq_ignore_ascii_case(scheme.as_bytes()).then(|| trimmed(rest))
}
