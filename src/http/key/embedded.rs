//! IPv4 addresses that are embedded in IPv6 addresses.
//!
//! A client with one IPv4 address must not get more counters by coming over a translator or a tunnel, where it may
//! choose the remaining bits of an IPv6 address. So keys and lists use the IPv4 address wherever the prefix shows that
//! there is one. Only prefixes that are fixed by an RFC are recognised.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// Returns the address by which a client is counted: the IPv4 address where an IPv6 address embeds one.
///
/// These are mapped addresses (`::ffff:0:0/96`), and those of NAT64 (`64:ff9b::/96`, RFC 6052), 6to4 (`2002::/16`,
/// RFC 3056) and Teredo (`2001::/32`, RFC 4380; the client's IPv4 address, not the server's).
pub(crate) fn counted(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
    }
}

/// Returns the IPv4 network of a network of IPv4 addresses mapped into IPv6; any other network unchanged.
pub(crate) fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(net, IpNet::V4)
}

/// Returns the part of an address that a client cannot choose: IPv4 whole, of other IPv6 the /56 of its site.
pub(crate) fn site(address: IpAddr) -> String {
    match counted(address) {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 72 << 72).to_string(),
    }
}

/// Returns the IPv4 address in an IPv6 address, if its prefix is one of those that embed one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(given: &str, expected: &str) {
        assert_eq!(counted(given.parse().unwrap()), expected.parse::<IpAddr>().unwrap());
    }

    #[test]
    fn an_ipv6_address_that_stands_for_ipv4_counts_as_that() {
        row("::ffff:203.0.113.7", "203.0.113.7");
        row("64:ff9b::203.0.113.7", "203.0.113.7");
        row("2002:cb00:7107:1::9", "203.0.113.7");
        row("2001:0:4136:e378:8000:63bf:34ff:8ef8", "203.0.113.7");
    }

    #[test]
    fn any_other_ipv6_address_counts_as_itself() {
        for address in
            ["64:ff9b:1::203.0.113.7", "64:ff9b::1:203.0.113.7", "2001:db8::1", "2001:1::1", "::1", "::203.0.113.7"]
        {
            row(address, address);
        }
        row("203.0.113.7", "203.0.113.7");
    }
}
