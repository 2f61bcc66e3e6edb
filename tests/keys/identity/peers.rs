//! Where the address of the peer is found, and a proxy that has none.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::extract::connect_info::MockConnectInfo;
use http::request::Parts;
use tollgate::key::{self, ClientIp, Extracted, KeyExtractor, client_ip};
use tollgate::store::MaybeFuture;

const XFF: &str = "x-forwarded-for";

fn head() -> Parts {
    http::Request::new(()).into_parts().0
}

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, last], 4_711))
}

#[track_caller]
fn counts_as(parts: &Parts, key: Option<&str>) {
    for extractor in [&key::peer_ip() as &dyn KeyExtractor, &client_ip()] {
        let MaybeFuture::Ready(found) = extractor.extract(parts) else { panic!("it is there at once") };
        let found = if let Extracted::Key(key) = &found { Some(key.as_str()) } else { None };
        assert_eq!(found, key);
    }
}

#[test]
fn the_peer_is_found_as_each_server_inserts_it() {
    let mut parts = head();
    counts_as(&parts, None);
    parts.extensions.insert(MockConnectInfo(address(1)));
    counts_as(&parts, Some("ip:203.0.113.1"));
    parts.extensions.insert(address(2));
    counts_as(&parts, Some("ip:203.0.113.2"));
    #[cfg(feature = "tonic")]
    {
        use tonic::transport::server::TcpConnectInfo;
        parts.extensions.insert(TcpConnectInfo { local_addr: None, remote_addr: Some(address(3)) });
        counts_as(&parts, Some("ip:203.0.113.3"));
    }
    parts.extensions.insert(ConnectInfo(address(4)));
    counts_as(&parts, Some("ip:203.0.113.4"));
}

#[track_caller]
fn behind_a_socket(setting: &ClientIp, header: Option<&str>, client: Option<&str>) {
    let mut parts = head();
    if let Some(header) = header {
        parts.headers.insert(XFF, header.parse().expect("ASCII"));
    }
    let client: Option<IpAddr> = client.map(|client| client.parse().expect("an address"));
    assert_eq!(setting.address(&parts), client, "{setting:?}, {header:?}");
}

#[test]
fn a_proxy_behind_a_unix_socket_is_trusted_where_that_is_set() {
    let chain = Some("198.51.100.66, 203.0.113.9, 10.0.0.2");
    let networks = || client_ip().trusted_proxies(["10.0.0.0/8"]);
    for (setting, client) in [
        (client_ip(), None),
        (client_ip().trusted_hops(0), None),
        (client_ip().trusted_hops(1), Some("10.0.0.2")),
        (client_ip().trusted_hops(2), Some("203.0.113.9")),
        (client_ip().trusted_hops(9), Some("198.51.100.66")),
        (networks(), None),
        (client_ip().trusted_unix_socket(), Some("10.0.0.2")),
        (networks().trusted_unix_socket(), Some("203.0.113.9")),
    ] {
        behind_a_socket(&setting, chain, client);
    }
    for nobody in [None, Some(""), Some("unknown"), Some("203.0.113.9, unknown")] {
        behind_a_socket(&client_ip().trusted_hops(1), nobody, None);
        behind_a_socket(&client_ip().trusted_unix_socket(), nobody, None);
    }
    let mut parts = head();
    parts.headers.insert(XFF, "198.51.100.66".parse().expect("ASCII"));
    parts.extensions.insert(address(9));
    let known = client_ip().trusted_unix_socket().address(&parts);
    assert_eq!(known, Some(address(9).ip()), "a peer with an address is no Unix socket");
}
