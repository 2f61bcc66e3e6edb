//! The entries of allow and deny lists, as extractors see them.
//!
//! When a layer is built, each entry of a policy's lists is checked against the policy's extractor, so that an entry
//! that no request can match is an error instead of a hole. Requests are not compared here: that is the list's part.

use std::fmt;

use ipnet::IpNet;

/// An entry of an [`AccessList`](crate::AccessList), for
/// [`KeyExtractor::can_match`](super::KeyExtractor::can_match).
///
/// Values are as they were given to the list: neither escaped nor hashed.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, KeyExtractor, ListEntry};
///
/// // Paths begin with a slash, and keys of paths are not keys of hosts.
/// assert!(key::path().can_match(ListEntry::Value(b"/health")));
/// assert!(!key::path().can_match(ListEntry::Value(b"health")));
/// assert!(!key::path().can_match(ListEntry::ValueOf("host", b"/health")));
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum ListEntry<'a> {
    /// The clients of a network.
    Net(IpNet),
    /// The client whose key, or one part of whose joined key, has this value.
    Value(&'a [u8]),
    /// A kind and a value: the same as `Value`, for keys and parts of this kind only.
    ValueOf(&'a str, &'a [u8]),
}

impl ListEntry<'_> {
    /// Whether keys of a kind can match the entry, if `has` accepts the values they may have; no address matches.
    pub(super) fn is_of(self, kind: &str, has: impl FnOnce(&[u8]) -> bool) -> bool {
        match self {
            ListEntry::Net(_) => false,
            ListEntry::Value(value) => has(value),
            ListEntry::ValueOf(wanted, value) => wanted == kind && has(value),
        }
    }

    /// The same as [`is_of`](Self::is_of), for a kind that is a word and a name, such as `header x-api-key`.
    pub(super) fn is_of_named(self, word: &str, name: &str, has: impl FnOnce(&[u8]) -> bool) -> bool {
        match self {
            ListEntry::ValueOf(kind, value) => kind.split_once(' ') == Some((word, name)) && has(value),
            other => other.is_of(word, has),
        }
    }

    /// Whether the entry is a value, and not a network.
    pub(super) fn is_value(self) -> bool {
        !matches!(self, ListEntry::Net(_))
    }
}

/// Leaves out values, which may be secrets.
impl fmt::Debug for ListEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListEntry::Net(net) => f.debug_tuple("Net").field(net).finish(),
            ListEntry::Value(_) => f.write_str("Value(..)"),
            ListEntry::ValueOf(kind, _) => write!(f, "ValueOf({kind:?}, ..)"),
        }
    }
}
