//! Clients that are never limited, or always refused.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::{Error, Key};

/// Clients by address or by key: see [`Policy::allow`](crate::Policy::allow).
///
/// # Examples
///
/// ```
/// use tollgate::AccessList;
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let office = AccessList::parse(["10.0.0.0/8", "2001:db8::/32", "monitoring-key"])?;
/// assert!(AccessList::parse(["10.0.0.0/33"]).is_err());
/// # let _ = office;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct AccessList {
    nets: Vec<IpNet>,
    /// The values of keys, as they stand in a key and hashed.
    values: HashSet<String>,
}

impl AccessList {
    /// Reads entries: an address or a CIDR stands for clients there, anything else for a key's
    /// value, such as an API key.
    ///
    /// # Errors
    ///
    /// If an entry is made like a CIDR and is none.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        entries.into_iter().try_fold(Self::default(), |list, entry| match read_net(entry)? {
            Some(net) => Ok(list.net(net)),
            None => Ok(list.key(entry)),
        })
    }

    /// Adds the clients of a network.
    pub fn net(mut self, net: IpNet) -> Self {
        self.nets.push(canonical(net).trunc());
        self
    }

    /// Adds the client whose key has this value, before it is escaped or hashed.
    pub fn key(mut self, value: impl AsRef<[u8]>) -> Self {
        for key in [Key::new("", &value), Key::hashed("", &value)] {
            self.values.insert(key.value().to_owned());
        }
        self
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.nets.iter().any(|net| net.contains(&address))
    }

    pub(crate) fn has_key(&self, key: &Key) -> bool {
        !self.values.is_empty() && self.values.contains(key.value())
    }

    pub(crate) fn has_nets(&self) -> bool {
        !self.nets.is_empty()
    }
}

fn read_net(entry: &str) -> Result<Option<IpNet>, Error> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Ok(Some(address.to_canonical().into()));
    }
    match entry.parse() {
        Ok(net) => Ok(Some(net)),
        Err(error) if is_made_like_a_net(entry) => Err(Error::invalid(format!(
            "{entry:?} is no CIDR: give an address and a prefix length, such as 10.0.0.0/8 or 2001:db8::/32"
        ))
        .with_source(error)),
        Err(_) => Ok(None),
    }
}

fn is_made_like_a_net(entry: &str) -> bool {
    let (address, bits) = entry.split_once('/').unwrap_or((entry, ""));
    let digits = address.chars().all(|c| c.is_ascii_hexdigit() || c == '.' || c == ':');
    let dots = if bits.is_empty() { 3 } else { 1 };
    let colons = if bits.is_empty() { 2 } else { 1 };
    digits && (address.matches(':').count() >= colons || address.matches('.').count() >= dots)
}

/// Addresses are looked up as IPv4 if they are mapped, so networks of mapped ones are kept as IPv4.
pub(crate) fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(net, IpNet::V4)
}
