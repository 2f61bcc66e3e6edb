//! Extracts the path of the request, in the one form that all its spellings share.
//!
//! Percent-encoding lets a client write one path in many ways. The normal form decodes what need not be encoded, as
//! RFC 3986 has it. A path that servers resolve to different ones (dot segments, double slashes, encoded slashes) is
//! ambiguous instead: to resolve it here would be to guess what the application does.

use std::borrow::Cow;
use std::fmt;

use http::request::Parts;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;

use super::{Ambiguous, Bannable, Extracted, Key, KeyExtractor, KeyInfo, Kind};
use crate::core::Answer;
use crate::lookup::RawValues;

static KIND: Kind = Kind::fixed("path:");

/// The extractor that [`path`] returns.
#[derive(Clone, Copy, Debug)]
struct Path;

/// Counts requests by their path, without the query.
///
/// Percent-encodings of one path are the same key: what need not be encoded is decoded, and all else is encoded with
/// capital digits (`/a%62c` is `/abc`, `/caf%c3%a9` is `/caf%C3%A9`). Entries of lists have to be given in this form.
/// The case of letters and a final slash make another path, as in axum's router.
///
/// A path that some servers read as another one is [ambiguous](Extracted::Ambiguous): with two slashes in a row
/// (`//abc`), a dot segment (`/a/../abc`), an encoded slash, a backslash, an encoded NUL, a `%` that encodes nothing,
/// or bytes that are not UTF-8 when decoded.
///
/// The client chooses the path: each one it makes up starts a counter of its own. Prefer `route`, of the feature
/// `axum`.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let (parts, ()) = http::Request::get("/a%62c?page=2").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = key::path().extract(&parts) else { panic!("there is a path") };
/// assert_eq!(key.as_str(), "path:/abc");
///
/// let (parts, ()) = http::Request::get("/a/../abc").body(())?.into_parts();
/// assert!(matches!(key::path().extract(&parts), Answer::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn path() -> impl KeyExtractor + Copy + fmt::Debug {
    Path
}

impl KeyExtractor for Path {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(normal(parts.uri.path()).map(|path| KIND.key(path.as_bytes())).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("path").bannable(Bannable::Shared)
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let path = normal(str::from_utf8(value).ok()?).ok()?;
        let is_path = path.starts_with('/') && PathAndQuery::try_from(&*path).is_ok();
        (is_path || matches!(&*path, "" | "*")).then(|| KIND.key(path.as_bytes()))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        if let Ok(path) = normal(parts.uri.path()) {
            offered.push(&*path);
        }
    }
}

/// Returns the path with only those bytes encoded that have to be:
/// <https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2>.
fn normal(path: &str) -> Result<Cow<'_, str>, Ambiguous> {
    let path = if path.bytes().all(is_plain) { Cow::Borrowed(path) } else { Cow::Owned(recoded(path)?) };
    if has_odd_segments(&path) { Err(Ambiguous) } else { Ok(path) }
}

/// Whether a byte need not be encoded in a path: <https://www.rfc-editor.org/rfc/rfc3986#section-3.3>.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
}

/// Decodes a path and encodes it again, if that is certain to leave its meaning.
fn recoded(path: &str) -> Result<String, Ambiguous> {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    // Each `%` that encoded a byte is two bytes shorter when decoded.
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

/// Whether a segment is empty, apart from the last, or is a dot segment.
fn has_odd_segments(path: &str) -> bool {
    path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(path: &str, expected: &str) {
        assert_eq!(normal(path).as_deref(), Ok(expected));
        assert_eq!(Path.key_of(expected.as_bytes()), Some(KIND.key(expected.as_bytes())), "it can be listed");
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
            assert_eq!(Path.key_of(path.as_bytes()), None, "{path}");
        }
    }
}
