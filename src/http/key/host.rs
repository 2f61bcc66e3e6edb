//! Extracts the host of the request.
//!
//! One host has many spellings: letters of either case, a port, a final dot, forms of an IP address. The URI
//! and the `Host` header come in; the one form that all spellings of a host share goes out. A host that is
//! malformed is ambiguous rather than repaired, as servers and proxies repair it in different ways.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use http::header::HOST;
use http::request::Parts;

use super::reading::lines;
use super::{Ambiguous, Bannable, Extracted, Key, KeyExtractor, KeyInfo, Kind};
use crate::core::Answer;
use crate::lookup::RawValues;

static KIND: Kind = Kind::fixed("host:");

/// An extractor of the host of the request.
///
/// Made by [`host`], which has the rules and an example.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
#[non_exhaustive]
pub struct Host;

/// Counts requests by their host: that of the `Host` header, and of the URI (HTTP/2, and requests to a proxy).
///
/// The host is lower-cased, its port and a final dot are dropped, and an IPv6 literal is shortened. A request without
/// a host has no key.
///
/// The host is [ambiguous](Extracted::Ambiguous) if several differ (`Host` lines from each other, or from the URI), if
/// it is empty, or if it is malformed: with user information, `%`, an empty label, an invalid port, or an IP address
/// in a form such as `127.1`.
///
/// The client chooses the host: each one it makes up starts a counter of its own, unless a layer outside of this one
/// refuses unknown hosts.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let (parts, ()) = http::Request::get("/").header("host", "API.example.com.:443").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = key::host().extract(&parts) else { panic!("there is a host") };
/// assert_eq!(key.as_str(), "host:api.example.com");
/// # Ok::<(), http::Error>(())
/// ```
pub fn host() -> Host {
    Host
}

impl Host {
    /// Returns the host in the form in which it is counted, for closures that derive a key from it.
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
    ///     let host = key::host().name(parts)?;
    ///     let tenant = host.as_deref().and_then(|host| host.strip_suffix(".example.com"));
    ///     Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
    /// });
    ///
    /// let (parts, ()) = http::Request::get("/").header("host", "Acme.example.com:8080").body(())?.into_parts();
    /// assert_eq!(key::host().name(&parts).unwrap().as_deref(), Some("acme.example.com"));
    /// assert_eq!(tenant(&parts), Ok(Some(Key::new("tenant", "acme"))));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn name<'a>(&self, parts: &'a Parts) -> Result<Option<Cow<'a, str>>, Ambiguous> {
        let mut names = authorities(parts);
        let Some(first) = names.next() else { return Ok(None) };
        let first = normal(first).ok_or(Ambiguous)?;
        let alike = names.all(|other| normal(other).is_some_and(|other| other == first));
        if alike { Ok(Some(first)) } else { Err(Ambiguous) }
    }
}

impl KeyExtractor for Host {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let name = self.name(parts);
        Answer::Ready(name.map(|name| name.map(|name| KIND.key(name.as_bytes()))).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("host").bannable(Bannable::Shared)
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        normal(value).map(|name| KIND.key(name.as_bytes()))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        if let Ok(Some(name)) = self.name(parts) {
            offered.push(&*name);
        }
    }
}

/// Returns the hosts that a request names, with their ports.
fn authorities(parts: &Parts) -> impl Iterator<Item = &[u8]> {
    let of_uri = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    of_uri.into_iter().chain(lines(&parts.headers, HOST))
}

/// Returns the normal form of the host in an authority, if it is well-formed.
fn normal(authority: &[u8]) -> Option<Cow<'_, str>> {
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

/// Whether this is nothing, or a colon with a port number or nothing after it:
/// <https://www.rfc-editor.org/rfc/rfc3986#section-3.2.3>.
fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':').unwrap_or(text);
    let fits = digits.is_empty() || digits.parse::<u16>().is_ok();
    (text.is_empty() || text.starts_with(':')) && fits && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether these are labels with dots between them, or an IPv4 address in its usual form.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~!$&'()*+,;=".contains(&byte);
    let mut labels = name.split('.');
    // What ends in a number is an address: https://url.spec.whatwg.org/#ends-in-a-number-checker
    let is_number = |label: &str| {
        let hex = label.strip_prefix("0x").or(label.strip_prefix("0X"));
        label.bytes().all(|byte| byte.is_ascii_digit())
            || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    labels.all(|label| !label.is_empty() && label.bytes().all(is_plain))
        && (!name.rsplit('.').next().is_some_and(is_number) || name.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(authority: &str, expected: Option<&str>) {
        assert_eq!(normal(authority.as_bytes()).as_deref(), expected, "{authority}");
    }

    #[test]
    fn spellings_of_a_host_have_one_form() {
        for authority in ["acme", "ACME", "acme.", "acme:80", "Acme.:8080", "acme:", "acme:0080"] {
            row(authority, Some("acme"));
        }
        row("127.0.0.1:80", Some("127.0.0.1"));
        row("[2001:DB8:0:0::1]:443", Some("[2001:db8::1]"));
        row("a_b.example", Some("a_b.example"));
        row("1.example", Some("1.example"));
    }

    #[test]
    fn a_host_that_is_not_as_it_should_be_has_none() {
        for authority in [
            "",
            ".",
            ":80",
            "acme..",
            "a..b",
            ".acme",
            "acme:8x",
            "acme:99999",
            "acme:+1",
            "user@acme",
            "ac%6De",
            "a b",
            "a/b",
            "127.1",
            "0x7f.0.0.1",
            "127.0.0.01",
            "2130706433",
            "[::1",
            "[::1]x",
            "[fe80::1%25eth0]",
            "[v1.a]",
            "2001:db8::1",
            "a\u{e9}",
        ] {
            row(authority, None);
        }
    }
}
