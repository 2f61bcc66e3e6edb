//! The value of a cookie.

use http::HeaderValue;
use http::header::COOKIE;
use http::request::Parts;

use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::store::Answer;

/// The first value of a cookie. See [`cookie`].
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
    kind: Kind,
    plain: bool,
}

/// Counts by the first value of a cookie, such as a session.
///
/// The value is taken for a secret: only a hash of it leaves the process, unless it is declared
/// [`plain`](Cookie::plain). Double quotes around it do not count. A request without the cookie has no
/// key; an empty value is a value.
///
/// Clients choose it: every value they make up starts a counter of its own, unless something before the
/// layer verified it.
pub fn cookie(name: &str) -> Cookie {
    Cookie { name: name.to_owned(), kind: Kind::new(&format!("cookie {name}")), plain: false }
}

impl Cookie {
    /// Keeps the value readable in the store.
    pub fn plain(self) -> Self {
        Self { plain: true, ..self }
    }
}

impl KeyExtractor for Cookie {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let make = if self.plain { Kind::key } else { Kind::hashed };
        let value = value(parts, self.name.as_bytes());
        Answer::Ready(value.map(|value| make(&self.kind, value)).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        // Quotes around a value may have kept its blanks.
        let has = |value: &[u8]| !value.contains(&b';') && HeaderValue::from_bytes(value).is_ok();
        entry.is_of_named("cookie", &self.name, has)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(value(parts, self.name.as_bytes()));
    }
}

/// Finds the first value of a cookie. The `cookie` crate reads text only, so one cookie that is not
/// UTF-8 would hide the others.
fn value<'a>(parts: &'a Parts, name: &[u8]) -> Option<&'a [u8]> {
    let lines = parts.headers.get_all(COOKIE).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).find_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (found, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        (found == name).then(|| unquoted(value))
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}
