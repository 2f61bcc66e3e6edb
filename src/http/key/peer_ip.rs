//! Extracts the address at the other end of the connection.
//!
//! It is the only address that no client can forge, so the chain of proxies of [`client_ip`](super::client_ip) starts
//! with it. No header is read here.

use std::borrow::Cow;

use http::request::Parts;

use super::MissingKey;
use super::ip::{DEFAULT_V6_PREFIX, LEAST_SITE, ip_key, ip_key_of, is_ip_key};
use super::peer::peer;
use super::{Bannable, Extracted, Key, KeyExtractor, ListEntry, Needs};
use crate::core::{Answer, Error};

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
/// requests [share](MissingKey::Share) one counter.
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

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        matches!(entry, ListEntry::Net(_)) || entry.is_of("ip", |value| is_ip_key(value, self.v6_prefix))
    }

    fn missing_key(&self) -> MissingKey {
        MissingKey::Share
    }

    fn is_proven(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        Needs { peer: true, ..Needs::default() }
    }

    fn bannable(&self) -> Bannable {
        if self.v6_prefix < LEAST_SITE { Bannable::Shared } else { Bannable::Client }
    }

    fn kind(&self) -> Option<Cow<'_, str>> {
        Some("ip".into())
    }

    fn key_of(&self, values: &[&[u8]]) -> Result<Key, Error> {
        ip_key_of(values, self.v6_prefix)
    }
}
