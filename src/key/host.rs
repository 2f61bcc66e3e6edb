//! The host that is asked for.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

use super::{Extracted, Key, KeyExtractor, ListEntry};
use crate::RawValues;
use crate::store::Answer;

/// The host that is asked for. See [`host`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

/// Counts by the host: that of the URI (HTTP/2), else the `Host` header.
///
/// It is lower-cased, and its port and a final dot are dropped. A request without a host, with several,
/// or with a malformed one has no key.
///
/// Clients choose it: every host they make up starts a counter of its own, unless something before the
/// layer refuses unknown ones.
pub fn host() -> Host {
    Host
}

impl KeyExtractor for Host {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(found(parts).map(|host| Key::new("host", host)).into())
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(found(parts));
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of("host", is_normal)
    }
}

fn found(parts: &Parts) -> Option<String> {
    match parts.uri.host() {
        Some(host) => normal(host),
        None => header(parts).and_then(|authority| normal(authority.host())),
    }
}

fn header(parts: &Parts) -> Option<Authority> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (Some(only), None) = (lines.next(), lines.next()) else { return None };
    let authority = Authority::try_from(only.as_bytes()).ok()?;
    let port = authority.as_str().strip_prefix(authority.host())?;
    (port.is_empty() || is_port(port)).then_some(authority)
}

/// A colon, and a number or nothing: <https://www.rfc-editor.org/rfc/rfc3986#section-3.2.3>.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn normal(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// Whether the host of a request can be told so: in lower case, without a port and a final dot.
fn is_normal(value: &[u8]) -> bool {
    let authority = Authority::try_from(value);
    authority.is_ok_and(|host| {
        host.host().as_bytes() == value && normal(host.host()).is_some_and(|host| host.as_bytes() == value)
    })
}
