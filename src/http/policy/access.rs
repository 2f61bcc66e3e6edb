//! Lists of clients that are never limited, or always denied.
//!
//! Values are escaped and hashed like keys, so that one lookup in a table finds them. An entry that can never match is
//! an error when the list or the layer is built, because a deny list with a typing error would allow the client that it
//! is meant to deny. Text that resembles an address but is not valid is an error too, because it would become a value.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipnet::IpNet;

use crate::core::{Error, Key};
use crate::http::key::{KeyExtractor, canonical, counted, parse_net, parts};

const MAX_SHOWN: usize = 64;

const SEPARATORS: &[char] =
    &['/', '\\', '-', '\u{2013}', '\u{2014}', '~', ',', ';', '[', ']', '(', ')', '<', '>', '"', '\'', '!', '+', '='];

/// List of clients, by address or by key, for [`Policy::allow`](crate::Policy::allow) and
/// [`Policy::deny`](crate::Policy::deny).
///
/// An address or a network matches the address of the client, whatever the policy's key is. It also matches the IPv4
/// address that is mapped or translated into the client's IPv6 address, as in keys.
///
/// A value matches a key that has this value. It matches the key of a [tuple](crate::key::KeyExtractor) if any part has
/// this value. Values are compared byte for byte with the key's normal form (a cookie decoded, a header without white
/// space around it), before it is escaped or hashed. If a client can choose one part of a joined key, use
/// [`key_of`](Self::key_of) for a value that is meant for another part. Otherwise the client could send the value in
/// the part that it chooses.
///
/// A deny list of values denies a request with an [ambiguous](crate::key::Extracted::Ambiguous) key. An allow list does
/// not compare the values of such a request.
///
/// A layer does not build with an entry that no request can match, such as a value on the list of a policy that counts
/// all requests together, or a host in capital letters.
///
/// # Examples
///
/// ```
/// use tollgate::policy::AccessList;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
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
    items: Vec<ListItem>,
    nets: Vec<IpNet>,
    /// Escaped and hashed like keys, each with the kinds of keys to which the value applies. `None` is any kind.
    values: HashMap<Box<str>, Vec<Option<Box<str>>>>,
    /// Set after the first request without an address. Clones share this flag.
    met_unknown: Arc<AtomicBool>,
    serves_unknown: bool,
}

#[derive(Clone)]
enum ListItem {
    Net,
    Value(Option<Box<str>>, Box<[u8]>),
}

impl AccessList {
    /// Parses entries: an address or a CIDR is a network of clients, anything else is the value of a key, such as an
    /// API key.
    ///
    /// # Errors
    ///
    /// If an entry resembles an address but is not a valid one, because the list would miss the client it is meant for.
    /// This is the case for
    ///
    /// - numbers separated by three or more dots, or by fewer dots if there is a star or a slash as well
    ///   (`203.0.113.*`, `10.1/16`, `203.0.113.7:80`, `10.0.0.1-10.0.0.9`, `10.0.0.0/33`, `010.0.0.1`),
    /// - hexadecimal numbers separated by two or more colons (`[2001:db8::1]`),
    /// - an address before white space, a slash or `%` (`10.0.0.1 # office`, `fe80::1%eth0`).
    ///
    /// The numbers of the first two cases may have other numbers, white space, brackets, quotes, and characters such as
    /// `,` `;` `/` `-` around them, and nothing else.
    ///
    /// An entry with any other letter in it (`tenant-1.2`, `v1.2.3.4`), with a slash at its beginning, or with at most
    /// two dots (`1.2.3`) is a value. Use [`key`](Self::key) or [`key_of`](Self::key_of) for values that resemble
    /// addresses.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::policy::AccessList;
    ///
    /// assert!(AccessList::parse(["203.0.113.7", "10.0.0.0/8", "tenant-1.2"]).is_ok());
    /// let error = AccessList::parse(["203.0.113.*"]).unwrap_err();
    /// assert!(error.to_string().starts_with("\"203.0.113.*\" looks like an address"));
    /// ```
    pub fn parse(entries: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        entries.into_iter().try_fold(Self::default(), |list, entry| list.entry(entry.as_ref()))
    }

    pub(crate) fn entry(self, entry: &str) -> Result<Self, Error> {
        match parse_net(entry) {
            Some(net) => Ok(self.net(net)),
            None if looks_like_an_address(entry) => {
                let shown: String = entry.chars().take(MAX_SHOWN).collect();
                Err(Error::invalid(format!(
                    "{shown:?} looks like an address but is not a valid one: use an address such as 203.0.113.7 or \
                     2001:db8::1, or a CIDR such as 10.0.0.0/8 or 2001:db8::/32, without spaces, brackets, ports, stars or \
                     leading zeros, and a range as several CIDRs; if it is the value of a key, give it to \
                     AccessList::key or key_of, or in a file as {{ value = \"...\" }}"
                )))
            }
            None => Ok(self.key(entry)),
        }
    }

    fn net(mut self, net: IpNet) -> Self {
        self.items.push(ListItem::Net);
        self.nets.push(canonical(net).trunc());
        self
    }

    /// Adds the client whose key has this value. A joined key matches if one of its parts has the value.
    ///
    /// Pass the value as requests carry it, in the key's normal form: neither escaped nor hashed.
    pub fn key(self, value: impl AsRef<[u8]>) -> Self {
        self.value(None, value.as_ref())
    }

    /// Adds the client whose key has this value, but only for keys of this kind, or parts of joined keys of this kind.
    ///
    /// The kind is the text before the colon in a key, before it is escaped: `bearer`, `path`, `header x-api-key`,
    /// `query tenant`, or the parts passed to [`Key::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{self, KeyExtractor};
    /// use tollgate::policy::AccessList;
    /// use tollgate::{Policy, Quota};
    ///
    /// // Only the header counts: a client could send `?tenant=internal` itself.
    /// let internal = AccessList::default().key_of("header x-tenant", "internal");
    /// let policy = Policy::new("tenant", Quota::per_minute(600))
    ///     .key((key::header("x-tenant"), key::query("tenant")))
    ///     .allow(internal);
    /// # let _ = policy;
    /// ```
    pub fn key_of(self, kind: &str, value: impl AsRef<[u8]>) -> Self {
        self.value(Some(kind), value.as_ref())
    }

    fn value(mut self, kind: Option<&str>, value: &[u8]) -> Self {
        for key in [Key::new(kind.unwrap_or_default(), value), Key::hashed(kind.unwrap_or_default(), value)] {
            self.values.entry(key.value().into()).or_default().push(kind.map(|_| key.kind().into()));
        }
        self.items.push(ListItem::Value(kind.map(Box::from), value.into()));
        self
    }

    /// Lets requests without a known address pass, if this is a deny list with addresses.
    ///
    /// By default a deny list with addresses denies such requests, because they may come from one of its addresses.
    /// Addresses are unknown if the app is not served with `into_make_service_with_connect_info::<SocketAddr>()`, and
    /// over Unix sockets.
    pub fn serve_unknown_addresses(self) -> Self {
        Self { serves_unknown: true, ..self }
    }

    pub(super) fn and(mut self, other: Self) -> Self {
        let passes = |list: &Self| list.serves_unknown || !list.has_nets();
        self.serves_unknown = passes(&self) && passes(&other);
        self.items.extend(other.items);
        self.nets.extend(other.nets);
        for (value, kinds) in other.values {
            self.values.entry(value).or_default().extend(kinds);
        }
        self
    }

    pub(crate) fn denies_unknown(&self) -> bool {
        !self.serves_unknown
    }

    pub(crate) fn meets_unknown(&self) -> bool {
        !self.met_unknown.load(Ordering::Relaxed) && !self.met_unknown.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let (plain, counted) = (address.to_canonical(), counted(address));
        self.nets.iter().any(|net| net.contains(&plain) || net.contains(&counted))
    }

    pub(crate) fn has_key(&self, key: &Key) -> bool {
        let is_of =
            |kinds: &Vec<Option<Box<str>>>, kind| kinds.iter().any(|of| of.as_deref().is_none_or(|of| of == kind));
        key.joined().any(|(kind, value)| self.values.get(value).is_some_and(|kinds| is_of(kinds, kind)))
    }

    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    pub(crate) fn has_nets(&self) -> bool {
        !self.nets.is_empty()
    }

    /// Returns the first entry that can never match: its position, from 1, and the text of the error.
    pub(crate) fn idle(&self, key: &dyn KeyExtractor) -> Option<(usize, String)> {
        let parts = parts(key);
        let place = self.items.iter().position(|item| !parts.iter().any(|part| item.can_match(*part)))?;
        let advice = match self.items[place] {
            ListItem::Net => {
                "no client's address is known without the feature axum: enable it, or use a key that contains it"
            }
            ListItem::Value(..) => {
                "no key of this policy can have this value: use it as requests carry it, or a key that \
                 has it"
            }
        };
        Some((place + 1, format!("can never match: {advice}")))
    }
}

impl ListItem {
    fn can_match(&self, key: &dyn KeyExtractor) -> bool {
        let info = key.info();
        match (self, info.kind.as_deref()) {
            // With the feature axum every layer has the client's address.
            (Self::Net, _) => cfg!(feature = "axum") || info.address_in_key,
            (Self::Value(..), None) => true,
            // All requests have this key, so the list would match all clients.
            (Self::Value(..), Some("global")) => false,
            (Self::Value(kind, value), Some(_)) => {
                let list = AccessList::default().value(kind.as_deref(), value);
                key.key_of(value).is_some_and(|key| list.has_key(&key))
            }
        }
    }
}

fn looks_like_an_address(entry: &str) -> bool {
    let text = entry.split('%').next().unwrap_or_default().trim();
    let start = text.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
    if start != entry && parse_net(start).is_some() {
        return true;
    }
    let is_separator = |c: char| c.is_whitespace() || SEPARATORS.contains(&c);
    let is_network = text.contains(['*', '/', '\\']);
    let is_v6 = text.split(is_separator).any(|piece| piece.matches(':').count() > 1);
    let is_v4 = text.split(is_separator).any(|piece| {
        let dots = piece.matches('.').count();
        (dots > 2 || dots > 0 && is_network) && piece.contains(|c: char| c.is_ascii_digit())
    });
    let is_hex = is_v6 || text.contains("0x") || text.contains("0X");
    let is_part =
        |c: char| c.is_ascii_digit() || ".:*xX".contains(c) || is_hex && c.is_ascii_hexdigit() || is_separator(c);
    !entry.starts_with('/') && (is_v4 || is_v6) && text.chars().all(is_part)
}

/// Leaves out values, because they may be secrets.
impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.items.len() - self.nets.len();
        f.debug_struct("AccessList").field("nets", &self.nets).field("values", &values).finish_non_exhaustive()
    }
}
