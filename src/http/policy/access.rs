//! Clients that are never limited, or always refused.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipnet::IpNet;

use super::address::read_net;
use crate::http::key::{ListEntry, canonical, counted};
use crate::{Error, Key};

/// Clients by address or by key: see [`Policy::allow`](crate::Policy::allow).
///
/// An address or a network matches the address of the client, whatever the policy's key is, and also
/// the IPv4 address it stands for if it is mapped or translated into IPv6, as keys count it. A value
/// matches a key that has it, and a joined key (as of [`and`](crate::key::KeyExtractor::and)) of which
/// any part has it, byte for byte, in the key's normal form (a cookie decoded, a header without white space
/// around it): lists know what keys escape and hash. Of an [ambiguous](crate::key::Extracted::Ambiguous) key
/// each value counts where clients are denied, and none where they are allowed.
/// Where clients choose one of the parts, a value that is meant for another part is to be listed by
/// [`key_of`](Self::key_of): else they could put it there.
///
/// Who builds a layer gets an error for an entry that no request can match: a value on the list of a
/// policy that counts all requests together, say, or a host in capital letters.
///
/// # Examples
///
/// ```
/// use tollgate::AccessList;
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let office = AccessList::parse(["10.0.0.0/8", "2001:db8::/32", "monitoring-key"])?;
/// let monitoring = AccessList::default().key_of("header x-api-key", "monitoring-key");
/// assert!(AccessList::parse(["10.0.0.0/33"]).is_err());
/// # let _ = (office, monitoring);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct AccessList {
    /// As they were given.
    entries: Vec<Entry>,
    nets: Vec<IpNet>,
    /// The values of keys, as they stand in a key and hashed.
    values: HashSet<String>,
    /// The same for keys of a kind.
    values_of: HashMap<String, HashSet<String>>,
    /// Whether a client without an address was met.
    met_unknown: Arc<AtomicBool>,
    serves_unknown: bool,
}

#[derive(Clone)]
enum Entry {
    Net(IpNet),
    Value(Box<[u8]>),
    ValueOf(Box<str>, Box<[u8]>),
}

impl AccessList {
    /// Reads entries: an address or a CIDR stands for clients there, anything else for a key's
    /// value, such as an API key.
    ///
    /// # Errors
    ///
    /// If an entry is made like an address and is none: a list would miss who it is meant for. Such are
    ///
    /// - numbers between three dots or more, between fewer where there is a star or a slash as well
    ///   (`203.0.113.*`, `10.1/16`), and hexadecimal numbers between two colons or more, with nothing
    ///   else around them than other numbers, white space, brackets, quotes and `,` `;` `/` `-` and the
    ///   like (`[2001:db8::1]`, `203.0.113.7:80`, `10.0.0.1-10.0.0.9`, `10.0.0.0/33`, `010.0.0.1`);
    /// - an address before white space, a slash or `%` (`10.0.0.1 # office`, `fe80::1%eth0`).
    ///
    /// What has any other letter in it, as `tenant-1.2` and `v1.2.3.4`, begins with a slash, or has two
    /// dots at most (`1.2.3`) is a value. A value that looks like an address is given to
    /// [`key`](Self::key) or [`key_of`](Self::key_of).
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        entries.into_iter().try_fold(Self::default(), Self::entry)
    }

    /// As [`parse`](Self::parse), for one more entry.
    pub(crate) fn entry(self, entry: &str) -> Result<Self, Error> {
        Ok(match read_net(entry)? {
            Some(net) => self.net(net),
            None => self.key(entry),
        })
    }

    /// Adds the clients of a network.
    pub fn net(mut self, net: IpNet) -> Self {
        self.entries.push(Entry::Net(net));
        self.nets.push(canonical(net).trunc());
        self
    }

    /// Adds the client whose key, or a part of whose joined key, has this value, before it is escaped
    /// or hashed.
    pub fn key(mut self, value: impl AsRef<[u8]>) -> Self {
        self.entries.push(Entry::Value(value.as_ref().into()));
        self.values.extend(texts("", value.as_ref()).map(|key| key.value().to_owned()));
        self
    }

    /// As [`key`](Self::key), for keys and parts of this kind only.
    ///
    /// The kind is what stands before the colon in a key's text, before it is escaped: `bearer`,
    /// `path`, `header x-api-key`, `query tenant`, or what was given to [`Key::new`].
    pub fn key_of(mut self, kind: &str, value: impl AsRef<[u8]>) -> Self {
        self.entries.push(Entry::ValueOf(kind.into(), value.as_ref().into()));
        let keys = texts(kind, value.as_ref());
        for (kind, value) in keys.iter().flat_map(Key::joined) {
            self.values_of.entry(kind.to_owned()).or_default().insert(value.to_owned());
        }
        self
    }

    /// Does not refuse clients of unknown address where this is a list to deny that has addresses.
    ///
    /// By default it does, as they may be those it means. Addresses are unknown where the app is not
    /// served with `into_make_service_with_connect_info::<SocketAddr>()`, and of Unix sockets.
    pub fn serve_unknown_addresses(self) -> Self {
        Self { serves_unknown: true, ..self }
    }

    pub(crate) fn denies_unknown(&self) -> bool {
        !self.serves_unknown
    }

    /// Whether a client of unknown address is the first one; a list that refuses nobody is not to be found
    /// out about by an attack.
    pub(crate) fn meets_unknown(&self) -> bool {
        !self.met_unknown.load(Ordering::Relaxed) && !self.met_unknown.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let (plain, counted) = (address.to_canonical(), counted(address));
        self.nets.iter().any(|net| net.contains(&plain) || net.contains(&counted))
    }

    pub(crate) fn has_key(&self, key: &Key) -> bool {
        let of_any = |value| !self.values.is_empty() && self.values.contains(value);
        let of_kind = |kind, value| self.values_of.get(kind).is_some_and(|values| values.contains(value));
        key.joined().any(|(kind, value)| of_any(value) || of_kind(kind, value))
    }

    /// Whether a value is on it, for keys of whatever kind.
    pub(crate) fn has_value(&self, value: &[u8]) -> bool {
        let sets = || iter::once(&self.values).chain(self.values_of.values());
        texts("", value).iter().any(|text| sets().any(|values| values.contains(text.value())))
    }

    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty() || !self.values_of.is_empty()
    }

    pub(crate) fn has_nets(&self) -> bool {
        !self.nets.is_empty()
    }

    /// Finds the first entry that can match nothing, counted from 1, and whether it is an address.
    pub(crate) fn idle(&self, can_match: impl Fn(ListEntry<'_>) -> bool) -> Option<(usize, bool)> {
        let place = self.entries.iter().position(|entry| !can_match(entry.borrowed()))?;
        Some((place + 1, matches!(self.entries[place], Entry::Net(_))))
    }
}

impl Entry {
    fn borrowed(&self) -> ListEntry<'_> {
        match self {
            Entry::Net(net) => ListEntry::Net(*net),
            Entry::Value(value) => ListEntry::Value(value),
            Entry::ValueOf(kind, value) => ListEntry::ValueOf(kind, value),
        }
    }
}

/// The keys that a value may be in: as it stands, and hashed.
fn texts(kind: &str, value: &[u8]) -> [Key; 2] {
    [Key::new(kind, value), Key::hashed(kind, value)]
}

/// What to do about an entry that can match nothing.
pub(crate) fn advice(is_address: bool) -> &'static str {
    if is_address {
        "no client's address is known without the feature axum: turn it on, or give the policy a key that knows it"
    } else {
        "no key of this policy has that value: give it as requests carry it, or give the policy a key that has it"
    }
}

/// Values of keys may be secrets.
impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.entries.len() - self.nets.len();
        f.debug_struct("AccessList").field("nets", &self.nets).field("values", &values).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(feature = "axum")))]
mod tests {
    use super::*;
    use crate::{MemoryStore, Policy, Quota, RateLimitLayer, key};

    #[test]
    fn a_list_of_addresses_is_an_error_where_no_address_is_ever_known() {
        let list = AccessList::parse(["10.0.0.0/8"]).expect("a CIDR");
        let policy = Policy::new("user", Quota::per_hour(1)).key(key::header("x-user")).deny(list);
        let error = RateLimitLayer::try_new(MemoryStore::new(), policy).expect_err("it can never match");
        assert!(error.is_invalid() && error.to_string().contains("without the feature axum"), "{error}");
    }
}
