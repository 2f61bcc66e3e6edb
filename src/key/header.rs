//! The value of a header.

use http::HeaderName;
use http::request::Parts;

use super::list_entry::in_header;
use super::{Extracted, KeyExtractor, Kind, ListEntry};
use crate::RawValues;
use crate::store::Answer;

/// The first value of a header. See [`header`].
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    kind: Kind,
    plain: bool,
}

/// Counts by the first value of a header, such as an API key.
///
/// The value is taken for a secret: only a hash of it leaves the process, unless it is declared
/// [`plain`](Header::plain). A request without the header has no key; an empty value is a value.
///
/// # Panics
///
/// If `name` is not a lower-case header name: see [`HeaderName::from_static`].
pub fn header(name: &'static str) -> Header {
    Header::new(HeaderName::from_static(name))
}

impl Header {
    /// As [`header`], for a name known only at run time.
    pub fn new(name: HeaderName) -> Self {
        let kind = Kind::new(&format!("header {name}"));
        Self { name, kind, plain: false }
    }

    /// Keeps the value readable in the store.
    pub fn plain(self) -> Self {
        Self { plain: true, ..self }
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let make = if self.plain { Kind::key } else { Kind::hashed };
        let value = parts.headers.get(&self.name);
        Answer::Ready(value.map(|value| make(&self.kind, value.as_bytes())).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_of_named("header", self.name.as_str(), in_header)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        offered.push_any(parts.headers.get(&self.name));
    }
}
