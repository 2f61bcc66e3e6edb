//! The address at the other end of the connection, as servers put it into the extensions of a request.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::extract::connect_info::MockConnectInfo;
use http::HeaderName;
use http::header::FORWARDED;
use http::request::Parts;
#[cfg(feature = "tonic")]
use tonic::transport::server::TcpConnectInfo;

/// The header in which most proxies name the client.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

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

/// Returns whether a request has a header in which proxies name the client.
pub(crate) fn is_forwarded(parts: &Parts) -> bool {
    parts.headers.contains_key(X_FORWARDED_FOR) || parts.headers.contains_key(FORWARDED)
}
