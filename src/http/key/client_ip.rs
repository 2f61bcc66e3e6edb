//! The client's address, also behind trusted proxies.
//!
//! The client is the first hop that is not a trusted proxy. The invariant: no header is read unless the peer is
//! trusted, and nothing is read to the left of a hop that is not trusted. So no client can choose its own address.

use std::net::IpAddr;

use http::request::Parts;
use ipnet::IpNet;

use super::extracted::Extracted;
use super::extractor::Bannable;
use super::extractor::MissingKey;
use super::ip::{DEFAULT_V6_PREFIX, ip_key, parse_net, peer};
use super::proxies::{ForwardHeader, Trust};
use super::value::header_name;
use super::{KeyExtractor, KeyInfo};
use crate::core::error::built;
use crate::core::{Error, Key, MaybeFuture};

/// Shorter prefixes of IPv6 addresses may be shared by several sites.
const MIN_SITE: u8 = 48;

/// Extractor of the client's address, also behind trusted proxies.
///
/// Created by [`client_ip`], which has the rules and an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    trust: Option<Trust>,
    source: Option<ForwardHeader>,
    unix_socket: bool,
    /// In bits, at most 128. 56 if it is not set.
    v6_prefix: Option<u8>,
}

/// Identifies clients by their IP address: the full IPv4 address, or the /56 prefix of an IPv6 address.
///
/// IPv6 addresses that embed an IPv4 address count as the IPv4 address: mapped addresses, NAT64 (`64:ff9b::/96`), 6to4
/// (`2002::/16`) and Teredo (`2001::/32`). A NAT64 gateway with a prefix of its own network is not recognised: its
/// clients count as IPv6.
///
/// By default no proxy is trusted, and the client is the peer: the address at the other end of the connection.
/// [`peer_ip`](super::peer_ip) documents how to serve the app. Without a peer address there is no key, and by default
/// such requests [share](crate::policy::MissingKey::Share) one counter.
///
/// In a layer, settings that are left out here default to [`RateLimitLayer::client`](crate::RateLimitLayer::client),
/// where the proxies of all policies are configured. If the layer has such settings, it does not build with a key that
/// trusts different proxies or reads a different header.
///
/// Behind proxies, configure the ones you trust: by their networks ([`trusted_proxies`](ClientIp::trusted_proxies)), or
/// by how many there are ([`trusted_hops`](ClientIp::trusted_hops)). The addresses in `X-Forwarded-For` are then read
/// from right to left. Starting with the peer, each trusted proxy vouches for the next address to the left. The first
/// address that does not belong to a trusted proxy is the client's. If all addresses belong to trusted proxies, the
/// leftmost address is the client's. Text that the client itself writes into the header is further to the left, so it
/// is never reached. More rules:
///
/// - The headers of a peer that is not trusted are ignored.
/// - A hop that is not an address ends the chain, and so does the 65th hop. The client is then the last address before
///   that hop, which belongs to a proxy.
/// - Repeated lines are one list. Empty elements are skipped.
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
    ClientIp { trust: None, source: None, unix_socket: false, v6_prefix: None }
}

impl ClientIp {
    /// Trusts the proxies in these networks, and no others: CIDRs, or single addresses.
    ///
    /// Replaces what was trusted before, also [`trusted_hops`](Self::trusted_hops). An empty list trusts no proxy.
    ///
    /// # Panics
    ///
    /// If an entry is neither a CIDR nor an address. Use [`try_trusted_proxies`](Self::try_trusted_proxies) for text
    /// from files and users.
    #[track_caller]
    pub fn trusted_proxies(self, cidrs: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        built(self.try_trusted_proxies(cidrs))
    }

    /// Fallible version of [`trusted_proxies`](Self::trusted_proxies).
    ///
    /// # Errors
    ///
    /// If an entry is neither a CIDR nor an address. The message names the entry.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// let error = key::client_ip().try_trusted_proxies(["10.0.0.0/8", "proxy.internal"]).unwrap_err();
    /// assert!(error.to_string().contains("\"proxy.internal\" is not a network"));
    /// ```
    pub fn try_trusted_proxies(self, cidrs: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let net = |cidr: &str| {
            parse_net(cidr).ok_or_else(|| {
                let shown: String = cidr.chars().take(64).collect();
                Error::invalid(format!(
                    "trusted proxy {shown:?} is not a network: write a CIDR such as \"10.0.0.0/8\" or \"2001:db8::/32\", \
                     or an address"
                ))
            })
        };
        let nets: Result<Vec<IpNet>, Error> = cidrs.into_iter().map(|cidr| net(cidr.as_ref())).collect();
        Ok(Self { trust: Some(Trust::nets(nets?)), ..self })
    }

    /// Trusts this many proxies instead of networks, counted from the peer.
    ///
    /// This is for proxies whose addresses are not known in advance. Every request must pass through all of them,
    /// because a client that can reach one of the later proxies directly chooses its own address. With 0 no proxy is
    /// trusted.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::extract::ConnectInfo;
    /// use std::net::{IpAddr, SocketAddr};
    /// use tollgate::key;
    ///
    /// // A CDN, and a load balancer behind it, which is the peer.
    /// let client_ip = key::client_ip().trusted_hops(2);
    ///
    /// let (mut parts, ()) = http::Request::builder()
    ///     .header("x-forwarded-for", "127.0.0.1, 203.0.113.9, 198.51.100.2")
    ///     .body(())?
    ///     .into_parts();
    /// parts.extensions.insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
    /// assert_eq!(client_ip.address(&parts), Some(IpAddr::from([203, 0, 113, 9])));
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn trusted_hops(self, proxies: usize) -> Self {
        Self { trust: Some(Trust::Hops(proxies)), ..self }
    }

    /// Trusts the proxy at the other end of a Unix socket, which has no address.
    ///
    /// A request without a peer's address then comes from that proxy. With [`trusted_hops`](Self::trusted_hops) of 1 or
    /// more, that proxy is the first trusted hop even without this setting.
    ///
    /// Use it only for servers that listen on Unix sockets and nowhere else. Over TCP, the peer's address may be
    /// missing by mistake. Then clients would choose their address, and could get other clients [banned](crate::Ban).
    pub fn trusted_unix_socket(self) -> Self {
        Self { unix_socket: true, ..self }
    }

    /// Reads `Forwarded` (RFC 7239) instead of `X-Forwarded-For`. Replaces [`header`](Self::header).
    ///
    /// A hop without exactly one `for`, or with one that hides the address (`unknown`, `_name`), counts as malformed
    /// and ends the chain.
    pub fn forwarded(self) -> Self {
        Self { source: Some(ForwardHeader::Forwarded), ..self }
    }

    /// Reads one address from a header such as `X-Real-IP` or `CF-Connecting-IP` instead of `X-Forwarded-For`, if the
    /// peer is trusted.
    ///
    /// The proxy must overwrite the header, because the layer cannot distinguish the proxy's value from a client's. If
    /// there is no such header, or more than one, or it does not hold an address, the client is the peer.
    ///
    /// # Panics
    ///
    /// If `name` is not a header name. Use [`try_header`](Self::try_header) for text from files and users.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key;
    ///
    /// let client_ip = key::client_ip().trusted_proxies(["10.0.0.0/8"]).header("cf-connecting-ip");
    /// # let _ = client_ip;
    /// ```
    #[track_caller]
    pub fn header(self, name: impl AsRef<str>) -> Self {
        built(self.try_header(name))
    }

    /// Fallible version of [`header`](Self::header).
    ///
    /// # Errors
    ///
    /// If `name` is not a header name.
    pub fn try_header(self, name: impl AsRef<str>) -> Result<Self, Error> {
        Ok(Self { source: Some(ForwardHeader::Single(header_name(name.as_ref())?)), ..self })
    }

    /// Sets how many leading bits of an IPv6 address identify a client, instead of 56.
    ///
    /// Addresses with equal leading bits share a counter. More than 128 bits are taken as 128. With 0 bits all IPv6
    /// clients share one counter. IPv4 addresses are always counted whole.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::extract::ConnectInfo;
    /// use std::net::SocketAddr;
    /// use tollgate::key::{self, Extracted, KeyExtractor};
    /// use tollgate::store::MaybeFuture;
    ///
    /// let (mut parts, ()) = http::Request::get("/").body(())?.into_parts();
    /// parts.extensions.insert(ConnectInfo("[2001:db8:0:1::9]:4711".parse::<SocketAddr>().expect("an address")));
    /// let by_network = key::client_ip().v6_prefix(64);
    /// let MaybeFuture::Ready(Extracted::Key(key)) = by_network.extract(&parts) else { panic!("there is a peer") };
    /// assert_eq!(key.as_str(), "ip:2001:db8:0:1::/64");
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn v6_prefix(self, bits: u8) -> Self {
        Self { v6_prefix: Some(bits.min(128)), ..self }
    }

    /// Returns the client's whole address.
    ///
    /// `None` if the peer's address is not known, and the peer is not a trusted proxy or does not name a client. The
    /// prefix length does not apply. IPv4 addresses mapped into IPv6 are IPv4. Other embedded addresses stay IPv6.
    pub fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let peer = peer(parts).map(|peer| peer.to_canonical());
        if peer.is_some_and(|peer| !self.trusts(0, peer)) {
            return peer;
        }
        let source = self.source.as_ref().unwrap_or(&ForwardHeader::XForwardedFor);
        self.walk(peer, source.hops(&parts.headers))
    }

    /// Checks that not every peer is a trusted proxy, because clients could then choose their addresses.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let is_of_all = |nets: &[IpNet]| nets.iter().any(|net| net.prefix_len() == 0);
        if !matches!(&self.trust, Some(Trust::Nets(nets)) if is_of_all(nets)) {
            return Ok(());
        }
        Err(Error::invalid(
            "every peer would be a trusted proxy, by a network of all addresses, so each client would choose its own \
             address, and a fresh counter with it: use trusted_proxies as the networks of your proxies, or trusted_hops \
             if nobody else can reach the server",
        ))
    }

    /// Fills open settings from the layer's client. If the layer trusts proxies and sets no header, it reads
    /// `X-Forwarded-For`.
    pub(crate) fn bound(&self, layer: &Self) -> Result<Self, Error> {
        self.check()?;
        let layer_trusts = layer.trust.is_some() || layer.unix_socket;
        let trust = layer.trust.clone().or(layer_trusts.then_some(Trust::Hops(0)));
        let source = layer.source.clone().or(layer_trusts.then_some(ForwardHeader::XForwardedFor));
        let bound = Self {
            trust: self.trust.clone().or(trust.clone()),
            source: self.source.clone().or(source.clone()),
            unix_socket: self.unix_socket || layer.unix_socket,
            v6_prefix: self.v6_prefix.or(layer.v6_prefix),
        };
        let other_socket = layer_trusts && bound.unix_socket && !layer.unix_socket;
        let what = if other_socket || trust.is_some() && trust != bound.trust {
            "trusts other proxies"
        } else if source.is_some() && source != bound.source {
            "reads another header"
        } else {
            return Ok(bound);
        };
        Err(Error::invalid(format!(
            "its client_ip() {what} than the client of the layer: set proxies and header in RateLimitLayer::client only"
        )))
    }

    fn prefix(&self) -> u8 {
        self.v6_prefix.unwrap_or(DEFAULT_V6_PREFIX)
    }

    fn trusts(&self, passed: usize, address: IpAddr) -> bool {
        self.trust.as_ref().is_some_and(|trust| trust.covers(passed, address))
    }

    fn walk(&self, peer: Option<IpAddr>, mut hops: impl Iterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
        let (mut client, mut passed) = match peer {
            Some(peer) => (peer, 0),
            // Over a Unix socket the nearest trusted proxy has no address.
            None if self.unix_socket || matches!(self.trust, Some(Trust::Hops(1..))) => (hops.next()??, 1),
            None => return None,
        };
        while self.trusts(passed, client)
            && let Some(Some(hop)) = hops.next()
        {
            client = hop;
            passed += 1;
        }
        Some(client)
    }
}

#[diagnostic::do_not_recommend]
impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(self.address(parts).map(|address| ip_key(address, self.prefix())).into())
    }

    fn info(&self) -> KeyInfo {
        let info = ip_info(self.prefix()).address_in_key();
        let is_spoofable = self.trust.as_ref().is_some_and(Trust::is_of_anyone);
        if is_spoofable { KeyInfo { bannable: Bannable::Spoofable, ..info } } else { info }
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        ip_key_of(value, self.prefix())
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.address(parts)
    }
}

/// Extractor of the peer's address.
///
/// Created by [`peer_ip`], which has the rules and an example.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PeerIp {
    /// In bits, at most 128.
    v6_prefix: u8,
}

/// Identifies clients by the address at the other end of the connection: IPv4 whole, IPv6 by its /56 prefix.
///
/// An IPv6 address that embeds an IPv4 address counts as the IPv4 address, as with [`client_ip`](super::client_ip).
///
/// Behind a proxy, this is the proxy's address. Use [`client_ip`](super::client_ip) for the address of the client.
/// Lists of addresses compare the layer's client address, not the peer's.
///
/// The address is read from the extensions of a request, where the server inserts it:
///
/// | server | what to do |
/// | --- | --- |
/// | axum | serve the app with `into_make_service_with_connect_info::<SocketAddr>()` |
/// | tonic 0.14, without TLS or with its own | enable the feature `tonic` |
/// | any other, such as hyper | insert the peer's [`SocketAddr`](std::net::SocketAddr) as it is |
///
/// Without an address, there is no key. The layer logs a warning with the code `TG004`, once for each policy. By
/// default all such requests [share](crate::policy::MissingKey::Share) one counter.
///
/// # Examples
///
/// ```
/// use axum::extract::ConnectInfo;
/// use std::net::SocketAddr;
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::MaybeFuture;
///
/// let (mut parts, ()) = http::Request::get("/").body(())?.into_parts();
/// parts.extensions.insert(ConnectInfo(SocketAddr::from(([203, 0, 113, 9], 4711))));
/// let MaybeFuture::Ready(Extracted::Key(key)) = key::peer_ip().extract(&parts) else { panic!("there is a peer") };
/// assert_eq!(key.as_str(), "ip:203.0.113.9");
/// # Ok::<(), http::Error>(())
/// ```
pub fn peer_ip() -> PeerIp {
    PeerIp { v6_prefix: DEFAULT_V6_PREFIX }
}

impl PeerIp {
    /// Sets how many leading bits of an IPv6 address identify a client, instead of 56.
    ///
    /// Addresses with equal leading bits share a counter. More than 128 bits are taken as 128. With 0 bits all IPv6
    /// clients share one counter. IPv4 addresses are always counted whole.
    pub fn v6_prefix(self, bits: u8) -> Self {
        Self { v6_prefix: bits.min(128) }
    }
}

#[diagnostic::do_not_recommend]
impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(peer(parts).map(|address| ip_key(address, self.v6_prefix)).into())
    }

    fn info(&self) -> KeyInfo {
        ip_info(self.v6_prefix)
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        ip_key_of(value, self.v6_prefix)
    }
}

fn ip_key_of(value: &[u8], v6_prefix: u8) -> Option<Key> {
    let text = str::from_utf8(value).ok()?;
    let key = |address: &str| Some(ip_key(address.parse().ok()?, v6_prefix));
    key(text).or_else(|| key(text.split_once('/')?.0).filter(|key| key.value() == text))
}

fn ip_info(v6_prefix: u8) -> KeyInfo {
    let info = KeyInfo { needs_peer: true, ..KeyInfo::new("ip").missing_key(MissingKey::Share).unforgeable() };
    if v6_prefix < MIN_SITE { info.shared() } else { info }
}
