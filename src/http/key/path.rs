//! The path, in the form that all its spellings have in common.

use std::borrow::Cow;
use std::fmt;

use http::request::Parts;
use http::uri::PathAndQuery;
use percent_encoding::{percent_decode, percent_decode_str};

use super::{Ambiguous, Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::core::Answer;

static KIND: Kind = Kind::fixed("path:");

/// The path of the request.
#[derive(Clone, Copy, Debug)]
struct Path;

/// Counts by the path, without the query.
///
/// Spellings of a path by other percent-encodings are one: what need not be encoded is decoded, all else
/// is encoded, in capital letters (`/a%62c` is `/abc`, `/caf%c3%a9` is `/caf%C3%A9`). So are values on
/// lists to be given. Capital letters and a final slash make another path, as in axum's router.
///
/// A path that some servers take for another one is [ambiguous](Extracted::Ambiguous): with two slashes
/// in a row (`//abc`), a dot segment (`/a/../abc`), an encoded slash, a backslash, an encoded NUL, a `%`
/// that encodes nothing, or what is not UTF-8 when decoded.
///
/// Clients choose it: every path they make up starts a counter of its own. Prefer the route.
pub fn path() -> impl KeyExtractor + Copy + fmt::Debug {
    Path
}

impl KeyExtractor for Path {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(normal(parts.uri.path()).map(|path| KIND.key(path.as_bytes())).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("path", is_path)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        let path = parts.uri.path();
        match normal(path) {
            Ok(path) => offered.push(&*path),
            Err(Ambiguous) => readings(path).for_each(|reading| offered.push(reading)),
        }
    }
}

/// The path with only what needs it encoded: <https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2>.
fn normal(path: &str) -> Result<Cow<'_, str>, Ambiguous> {
    let path = if path.bytes().all(is_plain) { Cow::Borrowed(path) } else { Cow::Owned(recoded(path)?) };
    if has_odd_segments(&path) { Err(Ambiguous) } else { Ok(path) }
}

/// What may stand in a path as it is: <https://www.rfc-editor.org/rfc/rfc3986#section-3.3>.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
}

fn recoded(path: &str) -> Result<String, Ambiguous> {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    // Of each `%` two bytes are gone, if it encoded anything.
    let encodes_all = path.len() == decoded.len() + 2 * path.matches('%').count();
    let same_segments = decoded.split(|byte| *byte == b'/').count() == path.split('/').count();
    let is_clear = same_segments && !decoded.contains(&b'\\') && !decoded.contains(&0);
    if encodes_all && is_clear && std::str::from_utf8(&decoded).is_ok() {
        Ok(encoded(&decoded))
    } else {
        Err(Ambiguous)
    }
}

fn encoded(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        let escaped = percent_encoding::percent_encode_byte(*byte);
        if is_plain(*byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(escaped);
        }
    }
    text
}

/// Whether a segment is empty, but for the last, or leads to another one.
fn has_odd_segments(path: &str) -> bool {
    path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..")
}

/// What servers may take an ambiguous path for.
fn readings(path: &str) -> impl Iterator<Item = String> {
    let decoded: Vec<u8> =
        percent_decode(path.as_bytes()).map(|byte| if byte == b'\\' { b'/' } else { byte }).collect();
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let read = ways.map(|(merged, resolved)| encoded(&joined(&decoded, merged, resolved)));
    std::iter::once(path.to_owned()).chain(read)
}

/// A path whose slashes are merged, and whose dot segments are resolved.
fn joined(path: &[u8], merged: bool, resolved: bool) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut rest = path.strip_prefix(b"/").unwrap_or(path).split(|byte| *byte == b'/').peekable();
    while let Some(segment) = rest.next() {
        let is_last = rest.peek().is_none();
        match segment {
            b"" if merged && !is_last => {}
            b"." | b".." if resolved => {
                if segment == b".." {
                    segments.pop();
                }
                if is_last {
                    segments.push(b"");
                }
            }
            _ => segments.push(segment),
        }
    }
    [b"/".as_slice(), &segments.join(&b'/')].concat()
}

/// Whether a request's path, which is without the query, can be told so.
fn is_path(value: &[u8]) -> bool {
    let is_normal = std::str::from_utf8(value).is_ok_and(|path| normal(path).is_ok_and(|normal| normal == path));
    let parsed =
        PathAndQuery::try_from(value).is_ok_and(|path| path.path().as_bytes() == value && path.query().is_none());
    is_normal && (value.is_empty() || (parsed && value.starts_with(b"/")) || value == b"*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(path: &str, expected: &str) {
        assert_eq!(normal(path).as_deref(), Ok(expected));
        assert!(is_path(expected.as_bytes()), "it can be listed");
    }

    #[test]
    fn spellings_of_a_path_have_one_form() {
        for path in ["/", "/abc", "/abc/", "/a.b/..c", "/a:b@c;d=e,f", "/caf%C3%A9", "/a%20b", "/100%25", "*", ""] {
            row(path, path);
        }
        row("/a%62c", "/abc");
        row("/%61%2D%7E", "/a-~");
        row("/ada%40example.com", "/ada@example.com");
        row("/caf%c3%a9", "/caf%C3%A9");
        row("/café", "/caf%C3%A9");
        row("/a|b\"{}", "/a%7Cb%22%7B%7D");
        row("/a%2562c", "/a%2562c");
    }

    #[test]
    fn a_path_that_servers_read_in_different_ways_is_ambiguous() {
        let paths = [
            "//",
            "//abc",
            "/a//b",
            "/abc//",
            "/.",
            "/a/..",
            "/./a",
            "/a/../b",
            "/%2e/a",
            "/a/%2E%2e/b",
            "/a%2Fb",
            "/a%5cb",
        ];
        for path in paths.into_iter().chain(["/a\\b", "/a%00", "/a%", "/a%2", "/a%zz", "/%ff"]) {
            assert_eq!(normal(path), Err(Ambiguous), "{path}");
            assert!(!is_path(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn an_ambiguous_path_is_offered_as_all_that_it_may_be_taken_for() {
        for path in ["//a/b", "/a//b", "/a%2Fb", "/a\\b", "/./a/b", "/a/c/../b", "/a/x%2f../b", "/%61//./b"] {
            assert!(readings(path).any(|reading| reading == "/a/b"), "{path}");
        }
        assert!(readings("/a/b/..").any(|reading| reading == "/a/"));
        assert!(readings("/../..").any(|reading| reading == "/"));
    }
}
