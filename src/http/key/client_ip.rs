//! The client's address, also behind proxies.

use std::net::IpAddr;

use http::HeaderName;
use http::request::Parts;
use ipnet::IpNet;

use super::MissingKey;
use super::ip::{DEFAULT_V6_PREFIX, ip_key, is_ip_key};
use super::peer_ip::peer;
use super::trust::{Trust, parse_net};
use super::{Extracted, KeyExtractor, ListEntry, hops};
use crate::Error;
use crate::core::Answer;

/// The client's address behind trusted proxies. See [`client_ip`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    trust: Trust,
    source: Source,
    v6_prefix: u8,
}

/// Which header is believed: one, as a client can send all that a proxy does not overwrite.
#[derive(Clone, Debug)]
enum Source {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

/// Counts by the client's address: IPv4 whole, IPv6 by /56.
///
/// IPv6 addresses that stand for IPv4 count as IPv4: mapped ones, those of NAT64 (`64:ff9b::/96`), of 6to4
/// (`2002::/16`) and of Teredo (`2001::/32`). A translator with a prefix of its own network is not known as
/// one: its clients are IPv6.
///
/// By default nobody is trusted, and the client is the peer: the address at the other end of the
/// connection, as with [`peer_ip`](super::peer_ip), which says what the app has to be served with.
///
/// Behind proxies, say which: by their networks ([`trusted_proxies`](ClientIp::trusted_proxies)) or by
/// how many there are ([`trusted_hops`](ClientIp::trusted_hops)). Then the chain of addresses in
/// `X-Forwarded-For` is walked from its right end. The walk starts at the peer and goes one to the left
/// as long as it stands on a trusted proxy; the first that is not trusted is the client. If all are
/// trusted, the left-most one is. What clients write into the header themselves stands further left and
/// is never reached:
///
/// - The headers of a peer that is not trusted are ignored.
/// - A hop that is no address ends the walk, and so does the 65th: the client is then the last address
///   before it, which is a proxy's.
/// - Repeated lines are one list; empty elements are skipped.
/// - Ports, brackets and zones (`%eth0`) are dropped. IPv4 addresses mapped into IPv6 are IPv4.
///
/// # Examples
///
/// ```
/// use axum::extract::ConnectInfo;
/// use std::net::{IpAddr, SocketAddr};
/// use tollgate::key;
///
/// let client_ip = key::client_ip().trusted_proxies(["10.0.0.0/8"]);
///
/// let (mut parts, ()) = http::Request::builder()
///     .header("x-forwarded-for", "127.0.0.1, 203.0.113.9, 10.0.0.2")
///     .body(())?
///     .into_parts();
/// parts.extensions.insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
/// assert_eq!(client_ip.address(&parts), Some(IpAddr::from([203, 0, 113, 9])));
/// # Ok::<(), http::Error>(())
/// ```
pub fn client_ip() -> ClientIp {
    ClientIp { trust: Trust::nobody(), source: Source::XForwardedFor, v6_prefix: DEFAULT_V6_PREFIX }
}

impl ClientIp {
    /// Trusts the proxies in these networks, and no others: CIDRs, or single addresses.
    ///
    /// # Panics
    ///
    /// If one of them is neither. Text from files and users goes through
    /// [`try_trusted_proxies`](Self::try_trusted_proxies).
    pub fn trusted_proxies(self, cidrs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        self.try_trusted_proxies(cidrs).expect("trusted proxies are CIDRs or addresses")
    }

    /// As [`trusted_proxies`](Self::trusted_proxies).
    ///
    /// # Errors
    ///
    /// If one of them is neither a CIDR nor an address: the message names it.
    pub fn try_trusted_proxies(self, cidrs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let nets: Result<Vec<IpNet>, Error> = cidrs.into_iter().map(|cidr| parse_net(cidr.as_ref())).collect();
        Ok(self.trusted_nets(nets?))
    }

    /// As [`trusted_proxies`](Self::trusted_proxies), for networks that are parsed already.
    pub fn trusted_nets(self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        Self { trust: Trust::nets(nets), ..self }
    }

    /// Trusts this many proxies, the peer being the first, instead of networks: for proxies whose
    /// addresses are not known.
    ///
    /// Every request must pass all of them: who can reach a nearer one directly chooses its address.
    pub fn trusted_hops(self, proxies: usize) -> Self {
        Self { trust: Trust::Hops(proxies), ..self }
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`.
    ///
    /// A hop without exactly one `for`, or with one that hides the address (`unknown`, `_name`), counts
    /// as malformed.
    pub fn forwarded(self) -> Self {
        Self { source: Source::Forwarded, ..self }
    }

    /// Reads one address from a header such as `X-Real-IP` or `CF-Connecting-IP` instead of
    /// `X-Forwarded-For`, if the peer is trusted.
    ///
    /// The proxy must overwrite it, as nothing tells its value from a client's. If there is no such
    /// header, or several, or it holds no address, the client is the peer.
    ///
    /// # Panics
    ///
    /// If `name` is not a header name.
    pub fn header(self, name: &str) -> Self {
        self.try_header(name).expect("the client's address is in a header with a valid name")
    }

    /// As [`header`](Self::header).
    ///
    /// # Errors
    ///
    /// If `name` is not a header name.
    pub fn try_header(self, name: &str) -> Result<Self, Error> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
            let shown: String = name.chars().take(64).collect();
            Error::invalid(format!("{shown:?} is not a header name: use letters, digits and '-'")).with_source(error)
        })?;
        Ok(Self { source: Source::Single(name), ..self })
    }

    /// Sets how many leading bits of an IPv6 address are counted as one client; at most 128.
    pub fn v6_prefix(self, bits: u8) -> Self {
        Self { v6_prefix: bits.min(128), ..self }
    }

    /// The client's whole address; none if the peer is not known.
    pub fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let (peer, headers) = (peer(parts)?.to_canonical(), &parts.headers);
        if !self.trust.covers(0, peer) {
            return Some(peer);
        }
        Some(match &self.source {
            Source::XForwardedFor => self.walk(peer, hops::x_forwarded_for(headers)),
            Source::Forwarded => self.walk(peer, hops::forwarded(headers)),
            Source::Single(name) => self.walk(peer, hops::single(headers, name)),
        })
    }

    fn walk(&self, peer: IpAddr, mut hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let (mut client, mut passed) = (peer, 0);
        while self.trust.covers(passed, client)
            && let Some(Some(hop)) = hops.next()
        {
            client = hop;
            passed += 1;
        }
        client
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(self.address(parts).map(|address| ip_key(address, self.v6_prefix)).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        matches!(entry, ListEntry::Net(_)) || entry.is_of("ip", |value| is_ip_key(value, self.v6_prefix))
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.address(parts)
    }

    fn missing_key(&self) -> MissingKey {
        MissingKey::Share
    }

    fn is_proven(&self) -> bool {
        true
    }
}
