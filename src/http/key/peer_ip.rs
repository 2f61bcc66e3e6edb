//! Extracts the address at the other end of the connection.
//!
//! It is the only address that no client can forge, so the chain of proxies of [`client_ip`](super::client_ip) starts
//! with it. No header is read here.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::extract::connect_info::MockConnectInfo;
use http::request::Parts;
#[cfg(feature = "tonic")]
use tonic::transport::server::TcpConnectInfo;

use super::ip::{DEFAULT_V6_PREFIX, ip_info, ip_key, ip_key_of};
use super::{Extracted, Key, KeyExtractor, KeyInfo};
use crate::core::Answer;

/// An extractor of the peer's address.
///
/// Made by [`peer_ip`], which has the rules and an example.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PeerIp {
    /// In bits, at most 128.
    v6_prefix: u8,
}

/// Identifies clients by the address at the other end of the connection: IPv4 whole, IPv6 by its /56 prefix.
///
/// An IPv6 address that embeds an IPv4 address counts as that one, as with [`client_ip`](super::client_ip).
///
/// If there is a proxy, this is its address: use [`client_ip`](super::client_ip) for the client's. Lists of
/// addresses compare the layer's client address, not this one.
///
/// The address is found in the extensions of a request where the server inserts it:
///
/// | server | what to do |
/// | --- | --- |
/// | axum | serve the app with `into_make_service_with_connect_info::<SocketAddr>()` |
/// | tonic 0.14, without TLS or with its own | enable the feature `tonic` |
/// | any other, such as hyper | insert the peer's [`SocketAddr`](std::net::SocketAddr) as it is |
///
/// If there is none, there is no key, a warning with the code `TG004` is logged once for each layer, and by default all
/// requests [share](crate::MissingKey::Share) one counter.
///
/// # Examples
///
/// ```
/// use axum::extract::ConnectInfo;
/// use std::net::SocketAddr;
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let (mut parts, ()) = http::Request::get("/").body(())?.into_parts();
/// parts.extensions.insert(ConnectInfo(SocketAddr::from(([203, 0, 113, 9], 4711))));
/// let Answer::Ready(Extracted::Key(key)) = key::peer_ip().extract(&parts) else { panic!("there is a peer") };
/// assert_eq!(key.as_str(), "ip:203.0.113.9");
/// # Ok::<(), http::Error>(())
/// ```
pub fn peer_ip() -> PeerIp {
    PeerIp { v6_prefix: DEFAULT_V6_PREFIX }
}

impl PeerIp {
    /// Sets how many leading bits of an IPv6 address identify a client, instead of 56.
    ///
    /// Addresses that share them share a counter. More than 128 bits are taken as 128; with 0 bits all IPv6 clients
    /// share one counter. IPv4 addresses are always counted whole.
    pub fn v6_prefix(self, bits: u8) -> Self {
        Self { v6_prefix: bits.min(128) }
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(peer(parts).map(|address| ip_key(address, self.v6_prefix)).into())
    }

    fn info(&self) -> KeyInfo {
        ip_info(self.v6_prefix)
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        ip_key_of(value, self.v6_prefix)
    }
}

/// Returns the address at the other end of the connection, by axum, by tonic, or as any server may insert it.
pub(crate) fn peer(parts: &Parts) -> Option<IpAddr> {
    let extensions = &parts.extensions;
    if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(peer.ip());
    }
    #[cfg(feature = "tonic")]
    if let Some(peer) = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr) {
        return Some(peer.ip());
    }
    // A mock is the last, as in axum.
    let mock = || extensions.get::<MockConnectInfo<SocketAddr>>().map(|MockConnectInfo(peer)| peer);
    extensions.get::<SocketAddr>().or_else(mock).map(SocketAddr::ip)
}
