//! Keys of IP addresses, and the IPv4 addresses that IPv6 addresses embed.
//!
//! An IPv6 client may use any address of its network, so only a prefix identifies it. A client with one IPv4 address
//! must not get more counters through a translator or a tunnel, where it may choose the remaining bits of an IPv6
//! address. So keys and lists use the IPv4 address wherever a prefix from an RFC shows that an IPv6 address embeds one.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[cfg(feature = "axum")]
use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};
use http::request::Parts;
use ipnet::{IpNet, Ipv4Net};
#[cfg(feature = "tonic")]
use tonic::transport::server::TcpConnectInfo;

use crate::core::{Digits, Key};

const KIND: usize = "ip:".len();

/// In bits: a site is usually delegated a /56, which has 2^72 addresses.
pub(crate) const DEFAULT_V6_PREFIX: u8 = 56;

/// Returns the key of an address: a whole IPv4 address, even if an IPv6 address embeds it, or an IPv6 prefix of at most
/// 128 bits.
pub(crate) fn ip_key(address: IpAddr, v6_prefix: u8) -> Key {
    let mut text = *b"ip:                                                 ";
    let length = match counted(address) {
        IpAddr::V4(v4) => write_v4(&mut text, v4),
        IpAddr::V6(v6) => {
            let mut rest = &mut text[KIND..];
            write!(rest, "{}/{v6_prefix}", network(v6, v6_prefix)).expect("43 bytes hold every network");
            let left = rest.len();
            text.len() - left
        }
    };
    Key::plain(&text, length)
}

/// Appends an address to the kind, faster than `Display`. Returns the total length.
fn write_v4(text: &mut [u8; 52], address: Ipv4Addr) -> usize {
    let mut end = KIND;
    for octet in address.octets() {
        let (digits, length) = Digits::of_octet(octet);
        text[end..end + 4].copy_from_slice(&digits);
        text[end + length] = b'.';
        end += length + 1;
    }
    // The last dot is left out.
    end - 1
}

fn network(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

/// Returns the address by which a client is counted: the IPv4 address if an IPv6 address embeds one.
///
/// These are mapped addresses (`::ffff:0:0/96`), NAT64 (`64:ff9b::/96`, RFC 6052), 6to4 (`2002::/16`, RFC 3056) and
/// Teredo (`2001::/32`, RFC 4380: the client's IPv4 address, not the server's).
pub(crate) fn counted(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
    }
}

pub(crate) fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(net, IpNet::V4)
}

/// Rejects leading zeros, unlike `ipnet`, because some parsers read them as octal.
pub(crate) fn parse_net(text: &str) -> Option<IpNet> {
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse().ok().map(|address: IpAddr| address.to_canonical().into());
    };
    let is_number = !bits.starts_with('0') || bits == "0";
    let bits = bits.parse().ok().filter(|_| is_number && bits.bytes().all(|byte| byte.is_ascii_digit()))?;
    IpNet::new(address.parse().ok()?, bits).ok()
}

fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let low = || Ipv4Addr::from_bits(u32::from(address.segments()[6]) << 16 | u32::from(address.segments()[7]));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(low()),
        [0x2002, high, rest, ..] => Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(rest))),
        // Teredo inverts its bits: https://www.rfc-editor.org/rfc/rfc4380#section-4
        [0x2001, 0, ..] => Some(Ipv4Addr::from_bits(!low().to_bits())),
        _ => None,
    }
}

/// Returns the peer's address from axum, tonic, or any server's `SocketAddr`. No client can forge it.
pub(crate) fn peer(parts: &Parts) -> Option<IpAddr> {
    let extensions = &parts.extensions;
    #[cfg(feature = "axum")]
    if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(peer.ip());
    }
    #[cfg(feature = "tonic")]
    if let Some(peer) = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr) {
        return Some(peer.ip());
    }
    let peer = extensions.get::<SocketAddr>();
    // Like axum, use a mock address only if there is no other.
    #[cfg(feature = "axum")]
    let peer = peer.or_else(|| extensions.get::<MockConnectInfo<SocketAddr>>().map(|MockConnectInfo(peer)| peer));
    peer.map(SocketAddr::ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_display_writes_it() {
        for octet in 0..=u8::MAX {
            let address = Ipv4Addr::new(octet, octet.wrapping_mul(7), octet.wrapping_add(90), octet / 3);
            assert_eq!(ip_key(address.into(), 56).as_str(), format!("ip:{address}"));
        }
        let longest = Ipv6Addr::from_bits(u128::MAX);
        assert_eq!(ip_key(longest.into(), 128).as_str(), format!("ip:{longest}/128"));
    }

    #[test]
    fn an_ipv6_address_that_does_not_stand_for_ipv4_counts_as_itself() {
        for address in ["64:ff9b::1:203.0.113.7", "2001:1::1", "::203.0.113.7"] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(counted(address), address);
        }
    }
}
