//! The address at the other end of the connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Once;

use axum::extract::ConnectInfo;
use http::request::Parts;

use super::MissingKey;
use super::ip::{DEFAULT_V6_PREFIX, ip_key, is_ip_key};
use super::{Extracted, KeyExtractor, ListEntry};
use crate::core::Answer;

/// The peer's address. See [`peer_ip`].
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    v6_prefix: u8,
}

/// Counts by the address at the other end of the connection: IPv4 whole, IPv6 by /56; an IPv6 address
/// that stands for IPv4, as [`client_ip`](super::client_ip) has them, is IPv4.
///
/// Behind a proxy that is the proxy's address: see [`client_ip`](super::client_ip) for the client's, which is
/// also the one that lists of addresses are about.
/// axum tells the address only if the app is served with
/// `into_make_service_with_connect_info::<SocketAddr>()`; else there is no key, a warning in the log
/// says so once, and by default all requests share one counter.
pub fn peer_ip() -> PeerIp {
    PeerIp { v6_prefix: DEFAULT_V6_PREFIX }
}

impl PeerIp {
    /// Sets how many leading bits of an IPv6 address are counted as one client; at most 128.
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
}

/// The address at the other end of the connection, if axum tells it.
pub(super) fn peer(parts: &Parts) -> Option<IpAddr> {
    let info = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    if info.is_none() {
        warn_once();
    }
    info.map(|ConnectInfo(peer)| peer.ip())
}

fn warn_once() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            "requests carry no peer address, so IP limits cannot tell clients apart: serve the app with \
             `into_make_service_with_connect_info::<SocketAddr>()`"
        );
    });
}
