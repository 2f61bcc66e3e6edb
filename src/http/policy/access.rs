//! Lists of clients that are never limited, or always refused.
//!
//! Text from code or files comes in; whether an address or a key is on the list goes out. Values are
//! kept as keys hold them, escaped and hashed, so that they are found by one lookup in a table. An entry that can never
//! match is an error when the list or the layer is built: a deny list with a typing error would admit the client that
//! it is meant to refuse.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipnet::IpNet;

use super::address::read_net;
use crate::core::{Error, Key};
use crate::http::key::{KeyExtractor, canonical, counted, parts};

/// A list of clients, by address or by key, for [`Policy::allow`](crate::Policy::allow) and
/// [`Policy::deny`](crate::Policy::deny).
///
/// An address or a network matches the address of the client, whatever the policy's key is. It also matches the IPv4
/// address that is mapped or translated into the client's IPv6 address, as in keys.
///
/// A value matches a key that has it, and a joined key (as of [`and`](crate::key::KeyExtractor::and)) if any part
/// has it. Values are compared byte for byte with the key's normal form (a cookie decoded, a header without white space
/// around it), before it is escaped or hashed. If a client can choose one part of a joined key, list a value that is
/// meant for another part with [`key_of`](Self::key_of): otherwise the client could send it in the part it chooses.
///
/// A request whose key is [ambiguous](crate::key::Extracted::Ambiguous) is refused by a deny list of values, and none of
/// its values is compared with an allow list.
///
/// A layer is not built with an entry that no request can match, such as a value on the list of a policy that counts
/// all requests together, or a host in capital letters.
///
/// # Examples
///
/// ```
/// use tollgate::{AccessList, MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let office = AccessList::parse(["10.0.0.0/8", "2001:db8::/32", "monitoring-key"])?;
/// let monitoring = AccessList::default().key_of("header x-api-key", "monitoring-key");
/// assert!(AccessList::parse(["10.0.0.0/33"]).is_err());
///
/// // Paths begin with a slash, so the entry can never match.
/// let policy = Policy::new("health", Quota::per_minute(60)).key(key::path());
/// let policy = policy.allow(AccessList::default().key("health"));
/// let error = RateLimitLayer::try_new(MemoryStore::new(), policy).unwrap_err();
/// assert!(error.to_string().contains("can never match"));
/// # let _ = (office, monitoring);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct AccessList {
    /// The entries as they were given, in their order.
    entries: Vec<Entry>,
    /// Networks in [`canonical`] form.
    nets: Vec<IpNet>,
    /// The values for keys of any kind: escaped as in a key, and hashed.
    values: HashSet<String>,
    /// The values for keys of one kind, by the escaped kind.
    values_of: HashMap<String, HashSet<String>>,
    /// Whether a request without an address has been seen; clones share it.
    met_unknown: Arc<AtomicBool>,
    /// Whether clients without an address pass a deny list.
    serves_unknown: bool,
}

/// An entry, as it was given.
#[derive(Clone)]
enum Entry {
    Net,
    Value(Box<[u8]>),
    ValueOf(Box<str>, Box<[u8]>),
}

impl AccessList {
    /// Parses entries: an address or a CIDR is a network of clients, anything else is the value of a key, such as an
    /// API key.
    ///
    /// # Errors
    ///
    /// If an entry looks like an address but is not a valid one, as the list would miss the client it is meant for.
    /// This is the case for
    ///
    /// - numbers separated by three or more dots, or by fewer if there is a star or a slash as well (`203.0.113.*`,
    ///   `10.1/16`), and hexadecimal numbers separated by two or more colons, with nothing around them but other
    ///   numbers, white space, brackets, quotes, and characters such as `,` `;` `/` `-` (`[2001:db8::1]`,
    ///   `203.0.113.7:80`, `10.0.0.1-10.0.0.9`, `10.0.0.0/33`, `010.0.0.1`);
    /// - an address before white space, a slash or `%` (`10.0.0.1 # office`, `fe80::1%eth0`).
    ///
    /// An entry with any other letter in it (`tenant-1.2`, `v1.2.3.4`), with a slash at its beginning, or with at most
    /// two dots (`1.2.3`) is a value. For values that look like addresses there are [`key`](Self::key) and
    /// [`key_of`](Self::key_of).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::AccessList;
    ///
    /// assert!(AccessList::parse(["203.0.113.7", "10.0.0.0/8", "tenant-1.2"]).is_ok());
    /// let error = AccessList::parse(["203.0.113.*"]).unwrap_err();
    /// assert!(error.to_string().starts_with("\"203.0.113.*\" looks like an address"));
    /// ```
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        entries.into_iter().try_fold(Self::default(), Self::entry)
    }

    /// Adds an entry, parsed as by [`parse`](Self::parse).
    pub(crate) fn entry(self, entry: &str) -> Result<Self, Error> {
        Ok(match read_net(entry)? {
            Some(net) => self.net(net),
            None => self.key(entry),
        })
    }

    /// Adds the clients of a network.
    pub fn net(mut self, net: IpNet) -> Self {
        self.entries.push(Entry::Net);
        self.nets.push(canonical(net).trunc());
        self
    }

    /// Adds the client whose key, or one part of whose joined key, has this value.
    ///
    /// The value is given as requests carry it, in the key's normal form: neither escaped nor hashed.
    pub fn key(mut self, value: impl AsRef<[u8]>) -> Self {
        self.entries.push(Entry::Value(value.as_ref().into()));
        self.values.extend(texts("", value.as_ref()).map(|key| key.value().to_owned()));
        self
    }

    /// Adds the client whose key has this value, for keys and parts of joined keys of this kind only.
    ///
    /// The kind is the text before the colon in a key, before it is escaped: `bearer`, `path`, `header x-api-key`,
    /// `query tenant`, or the parts passed to [`Key::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{self, KeyExtractor};
    /// use tollgate::{AccessList, Policy, Quota};
    ///
    /// // Only the header counts: a client could send `?tenant=internal` itself.
    /// let internal = AccessList::default().key_of("header x-tenant", "internal");
    /// let policy = Policy::new("tenant", Quota::per_minute(600))
    ///     .key(key::header("x-tenant").and(key::query("tenant")))
    ///     .allow(internal);
    /// # let _ = policy;
    /// ```
    pub fn key_of(mut self, kind: &str, value: impl AsRef<[u8]>) -> Self {
        self.entries.push(Entry::ValueOf(kind.into(), value.as_ref().into()));
        let keys = texts(kind, value.as_ref());
        for (kind, value) in keys.iter().flat_map(Key::joined) {
            self.values_of.entry(kind.to_owned()).or_default().insert(value.to_owned());
        }
        self
    }

    /// Lets requests without a known address pass, if this is a deny list with addresses.
    ///
    /// By default a deny list with addresses refuses them, as they may come from one of these. Addresses are unknown
    /// if the app is not served with `into_make_service_with_connect_info::<SocketAddr>()`, and over Unix sockets.
    pub fn serve_unknown_addresses(self) -> Self {
        Self { serves_unknown: true, ..self }
    }

    /// Adds the entries of another list. Clients without an address pass if they pass each one that has addresses.
    pub(super) fn and(mut self, other: Self) -> Self {
        let passes = |list: &Self| list.serves_unknown || !list.has_nets();
        self.serves_unknown = passes(&self) && passes(&other);
        self.entries.extend(other.entries);
        self.nets.extend(other.nets);
        self.values.extend(other.values);
        for (kind, values) in other.values_of {
            self.values_of.entry(kind).or_default().extend(values);
        }
        self
    }

    /// Whether a request without a known address is refused by a deny list with addresses.
    pub(crate) fn denies_unknown(&self) -> bool {
        !self.serves_unknown
    }

    /// Whether this is the first request without a known address: it is logged, so that operators notice a list
    /// without effect before an attack does.
    pub(crate) fn meets_unknown(&self) -> bool {
        !self.met_unknown.load(Ordering::Relaxed) && !self.met_unknown.swap(true, Ordering::Relaxed)
    }

    /// Whether an address, or the IPv4 address that it embeds, is in a network of the list.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let (plain, counted) = (address.to_canonical(), counted(address));
        self.nets.iter().any(|net| net.contains(&plain) || net.contains(&counted))
    }

    /// Whether a key, or a part of a joined key, is on the list.
    pub(crate) fn has_key(&self, key: &Key) -> bool {
        let of_any = |value| !self.values.is_empty() && self.values.contains(value);
        let of_kind = |kind, value| self.values_of.get(kind).is_some_and(|values| values.contains(value));
        key.joined().any(|(kind, value)| of_any(value) || of_kind(kind, value))
    }

    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty() || !self.values_of.is_empty()
    }

    pub(crate) fn has_nets(&self) -> bool {
        !self.nets.is_empty()
    }

    /// Returns the place of the first entry that no request with such a key can match, counted from 1, and whether it is
    /// an address.
    pub(crate) fn idle(&self, key: &dyn KeyExtractor) -> Option<(usize, bool)> {
        let parts = parts(key);
        let place = self.entries.iter().position(|entry| !parts.iter().any(|part| entry.can_match(*part)))?;
        Some((place + 1, matches!(self.entries[place], Entry::Net)))
    }
}

impl Entry {
    /// Whether some request can match by its key, or by an address.
    fn can_match(&self, key: &dyn KeyExtractor) -> bool {
        let info = key.info();
        let (value, list) = match self {
            // With the feature axum every layer has the client's address.
            Entry::Net => return cfg!(feature = "axum") || info.address_in_key,
            Entry::Value(value) => (value, AccessList::default().key(value)),
            Entry::ValueOf(kind, value) => (value, AccessList::default().key_of(kind, value)),
        };
        match info.kind.as_deref() {
            None => true,
            // All requests have this key: the list would match all clients.
            Some("global") => false,
            Some(_) => key.key_of(value).is_some_and(|key| list.has_key(&key)),
        }
    }
}

/// Returns the keys that may hold a value: escaped, and hashed.
fn texts(kind: &str, value: &[u8]) -> [Key; 2] {
    [Key::new(kind, value), Key::hashed(kind, value)]
}

/// Returns what an error advises for an entry that no request can match.
pub(crate) fn advice(is_address: bool) -> &'static str {
    if is_address {
        "no client's address is known without the feature axum: enable it, or give the policy a key that contains it"
    } else {
        "no key of this policy can have this value: give it as requests carry it, or give the policy a key that has it"
    }
}

/// Leaves out values, which may be secrets.
impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.entries.len() - self.nets.len();
        f.debug_struct("AccessList").field("nets", &self.nets).field("values", &values).finish_non_exhaustive()
    }
}
