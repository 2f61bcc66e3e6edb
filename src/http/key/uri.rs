//! Keys from the host and the path of the request, each in one form for all its spellings.
//!
//! A host or a path that servers and proxies read in different ways is ambiguous rather than repaired, because a repair
//! would be a guess about the application.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::HOST;
use http::request::Parts;
use http::uri::PathAndQuery;
use percent_encoding::{percent_decode_str, percent_encode_byte};

use super::extracted::{Ambiguous, Extracted};
use super::reading::lines;
use super::{KeyExtractor, KeyInfo};
use crate::core::{Key, KeyKind, MaybeFuture};

static HOST_KIND: KeyKind = KeyKind::fixed("host:");

#[derive(Clone, Copy, Debug)]
pub(super) struct Host;

/// Counts requests by their host, from the `Host` header and the URI (HTTP/2, and requests to a proxy).
///
/// The host is lower-cased, its port and a final dot are dropped, and an IPv6 literal is shortened. A request without
/// a host has no key.
///
/// The host is [ambiguous](Extracted::Ambiguous) if several `Host` lines differ, if the URI names a different host, if
/// the host is empty, or if the host is malformed: with user information, `%`, an empty label, an invalid port, or an
/// IP address in a form such as `127.1`.
///
/// The client chooses the host: each invented host starts its own counter, unless an outer layer denies unknown hosts.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let (parts, ()) = http::Request::get("/").header("host", "API.example.com.:443").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = key::host().extract(&parts) else { panic!("there is a host") };
/// assert_eq!(key.as_str(), "host:api.example.com");
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn host() -> impl KeyExtractor + Copy + fmt::Debug {
    Host
}

/// Returns the host of a request in the form in which [`host`] counts it, for closures that derive a key from it.
///
/// `None` if the request has no host. Prefer this to `parts.uri.host()`, which is `None` on HTTP/1.1, where the
/// host is in the `Host` header.
///
/// # Errors
///
/// If the host is ambiguous.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Ambiguous};
/// use tollgate::Key;
///
/// // `acme.example.com` is the tenant `acme`; other hosts have no key.
/// let tenant = key::from_fn(|parts| {
///     let host = key::host_name(parts)?;
///     let tenant = host.as_deref().and_then(|host| host.strip_suffix(".example.com"));
///     Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
/// });
///
/// let (parts, ()) = http::Request::get("/").header("host", "Acme.example.com:8080").body(())?.into_parts();
/// assert_eq!(key::host_name(&parts).unwrap().as_deref(), Some("acme.example.com"));
/// assert_eq!(tenant(&parts), Ok(Some(Key::new("tenant", "acme"))));
/// # Ok::<(), http::Error>(())
/// ```
pub fn host_name(parts: &Parts) -> Result<Option<Cow<'_, str>>, Ambiguous> {
    let mut names = authorities(parts);
    let Some(first) = names.next() else { return Ok(None) };
    let first = host_form(first).ok_or(Ambiguous)?;
    let alike = names.all(|other| host_form(other).is_some_and(|other| other == first));
    if alike { Ok(Some(first)) } else { Err(Ambiguous) }
}

impl KeyExtractor for Host {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        let name = host_name(parts);
        MaybeFuture::Ready(name.map(|name| name.map(|name| HOST_KIND.key(name.as_bytes()))).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("host").shared()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        host_form(value).map(|name| HOST_KIND.key(name.as_bytes()))
    }
}

fn authorities(parts: &Parts) -> impl Iterator<Item = &[u8]> {
    let of_uri = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    of_uri.into_iter().chain(lines(&parts.headers, HOST))
}

fn host_form(authority: &[u8]) -> Option<Cow<'_, str>> {
    let authority = std::str::from_utf8(authority).ok()?;
    if let Some(literal) = authority.strip_prefix('[') {
        let (address, port) = literal.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return is_port(port).then(|| Cow::Owned(format!("[{address}]")));
    }
    let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
    let name = name.strip_suffix('.').unwrap_or(name);
    if !is_port(port) || !is_name(name) {
        return None;
    }
    let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_lower { Cow::Borrowed(name) } else { Cow::Owned(name.to_ascii_lowercase()) })
}

/// Matches nothing, or a colon and an optional port number: <https://www.rfc-editor.org/rfc/rfc3986#section-3.2.3>.
fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':').unwrap_or(text);
    let fits = digits.is_empty() || digits.parse::<u16>().is_ok();
    (text.is_empty() || text.starts_with(':')) && fits && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~!$&'()*+,;=".contains(&byte);
    let mut labels = name.split('.');
    // A name that ends in a number is an address: https://url.spec.whatwg.org/#ends-in-a-number-checker
    let is_number = |label: &str| {
        let hex = label.strip_prefix("0x").or(label.strip_prefix("0X"));
        label.bytes().all(|byte| byte.is_ascii_digit())
            || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    labels.all(|label| !label.is_empty() && label.bytes().all(is_plain))
        && (!name.rsplit('.').next().is_some_and(is_number) || name.parse::<Ipv4Addr>().is_ok())
}

static PATH_KIND: KeyKind = KeyKind::fixed("path:");

#[derive(Clone, Copy, Debug)]
pub(super) struct Path;

/// Counts requests by their path, without the query.
///
/// Percent-encodings of one path are the same key: bytes that need no encoding are decoded, and all others are encoded
/// with capital digits (`/a%62c` is `/abc`, `/caf%c3%a9` is `/caf%C3%A9`). Entries of lists must have this form. Paths
/// that differ in the case of letters or in a final slash are different keys, because axum's router distinguishes them.
///
/// A path that some servers read as another path is [ambiguous](Extracted::Ambiguous): with two slashes in a row
/// (`//abc`), a dot segment (`/a/../abc`), an encoded slash, a backslash, an encoded NUL, a `%` that encodes nothing,
/// or bytes that are not UTF-8 when decoded.
///
/// The client chooses the path: each invented path starts its own counter. Prefer `route`, of the feature `axum`.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let (parts, ()) = http::Request::get("/a%62c?page=2").body(())?.into_parts();
/// let MaybeFuture::Ready(Extracted::Key(key)) = key::path().extract(&parts) else { panic!("there is a path") };
/// assert_eq!(key.as_str(), "path:/abc");
///
/// let (parts, ()) = http::Request::get("/a/../abc").body(())?.into_parts();
/// assert!(matches!(key::path().extract(&parts), MaybeFuture::Ready(Extracted::Ambiguous)));
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn path() -> impl KeyExtractor + Copy + fmt::Debug {
    Path
}

impl KeyExtractor for Path {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(path_form(parts.uri.path()).map(|path| PATH_KIND.key(path.as_bytes())).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("path").shared()
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        let path = path_form(str::from_utf8(value).ok()?).ok()?;
        let is_path = path.starts_with('/') && PathAndQuery::try_from(&*path).is_ok();
        (is_path || matches!(&*path, "" | "*")).then(|| PATH_KIND.key(path.as_bytes()))
    }
}

/// Encodes only those bytes that have to be: <https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2>.
pub(super) fn path_form(path: &str) -> Result<Cow<'_, str>, Ambiguous> {
    let path = if path.bytes().all(is_plain) { Cow::Borrowed(path) } else { Cow::Owned(recoded(path)?) };
    if has_odd_segments(&path) { Err(Ambiguous) } else { Ok(path) }
}

/// Source: <https://www.rfc-editor.org/rfc/rfc3986#section-3.3>.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
}

fn recoded(path: &str) -> Result<String, Ambiguous> {
    let decoded: Vec<u8> = percent_decode_str(path).collect();
    // Each `%` that encoded a byte is two bytes shorter when decoded.
    let encodes_all = path.len() == decoded.len() + 2 * path.matches('%').count();
    let same_segments = decoded.split(|byte| *byte == b'/').count() == path.split('/').count();
    let is_clear = same_segments && !decoded.contains(&b'\\') && !decoded.contains(&0);
    if !encodes_all || !is_clear || str::from_utf8(&decoded).is_err() {
        return Err(Ambiguous);
    }
    let mut text = String::with_capacity(path.len());
    for byte in decoded {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(percent_encode_byte(byte));
        }
    }
    Ok(text)
}

fn has_odd_segments(path: &str) -> bool {
    path.contains("//") || path.split('/').any(|segment| segment == "." || segment == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_host_have_one_form_and_what_servers_read_in_different_ways_has_none() {
        for (authority, form) in [
            ("acme", "acme"),
            ("Acme.:8080", "acme"),
            ("acme:", "acme"),
            ("acme:0080", "acme"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[2001:DB8:0:0::1]:443", "[2001:db8::1]"),
            ("a_b.example", "a_b.example"),
            ("1.example", "1.example"),
        ] {
            assert_eq!(host_form(authority.as_bytes()).as_deref(), Some(form), "{authority}");
        }
        let dots = "acme.. a..b .acme acme:99999 acme:+1 0x7f.0.0.1 127.0.0.01 2130706433";
        let others = "[::1]x [fe80::1%25eth0] [v1.a] 2001:db8::1 a\u{e9}";
        for authority in dots.split(' ').chain(others.split(' ')) {
            assert_eq!(host_form(authority.as_bytes()), None, "{authority}");
        }
    }

    #[test]
    fn spellings_of_a_path_have_one_form_which_can_be_listed() {
        for (path, form) in [
            ("/abc/", "/abc/"),
            ("/a.b/..c", "/a.b/..c"),
            ("/a:b@c;d=e,f", "/a:b@c;d=e,f"),
            ("/a%20b", "/a%20b"),
            ("*", "*"),
            ("", ""),
            ("/%61%2D%7E", "/a-~"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/café", "/caf%C3%A9"),
            ("/a|b\"{}", "/a%7Cb%22%7B%7D"),
            ("/a%2562c", "/a%2562c"),
        ] {
            assert_eq!(path_form(path).as_deref(), Ok(form));
            assert_eq!(Path.key_of(form.as_bytes()), Some(PATH_KIND.key(form.as_bytes())), "{form}");
        }
    }

    #[test]
    fn a_path_that_servers_read_in_different_ways_is_ambiguous() {
        let segments = "// /a//b /abc// /. /a/.. /./a /%2e/a /a/%2E%2e/b /a%2Fb /a%5cb";
        for path in segments.split(' ').chain(["/a\\b", "/a%00", "/a%", "/a%2", "/a%zz", "/%ff"]) {
            assert_eq!((path_form(path), Path.key_of(path.as_bytes())), (Err(Ambiguous), None), "{path}");
        }
    }
}
