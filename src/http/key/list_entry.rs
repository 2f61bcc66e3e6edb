//! What lists of clients ask of keys.

use std::fmt;

use ipnet::IpNet;

/// An entry of an [`AccessList`](crate::AccessList): see
/// [`KeyExtractor::can_match`](super::KeyExtractor::can_match).
///
/// Values are as they were written: neither escaped nor hashed.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum ListEntry<'a> {
    /// The clients of a network.
    Net(IpNet),
    /// The client whose key, or a part of whose joined key, has this value.
    Value(&'a [u8]),
    /// As `Value`, for keys of this kind only.
    ValueOf(&'a str, &'a [u8]),
}

impl ListEntry<'_> {
    /// Whether keys of a kind can match, of which some have such values; they tell no address.
    pub(super) fn is_of(self, kind: &str, has: impl FnOnce(&[u8]) -> bool) -> bool {
        match self {
            ListEntry::Net(_) => false,
            ListEntry::Value(value) => has(value),
            ListEntry::ValueOf(wanted, value) => wanted == kind && has(value),
        }
    }

    /// As [`is_of`](Self::is_of), for the kind that is a word and a name.
    pub(super) fn is_of_named(self, word: &str, name: &str, has: impl FnOnce(&[u8]) -> bool) -> bool {
        match self {
            ListEntry::ValueOf(kind, value) => kind.split_once(' ') == Some((word, name)) && has(value),
            other => other.is_of(word, has),
        }
    }

    /// Whether it asks for anything else than an address.
    pub(super) fn is_value(self) -> bool {
        !matches!(self, ListEntry::Net(_))
    }
}

/// Values of keys may be secrets.
impl fmt::Debug for ListEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListEntry::Net(net) => f.debug_tuple("Net").field(net).finish(),
            ListEntry::Value(_) => f.write_str("Value(..)"),
            ListEntry::ValueOf(kind, _) => write!(f, "ValueOf({kind:?}, ..)"),
        }
    }
}
