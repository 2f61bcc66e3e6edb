//! The normal form of IP networks.
//!
//! Trusted proxies and lists compare addresses after mapped ones were made IPv4, so their networks have to be too.

use ipnet::{IpNet, Ipv4Net};

/// Returns the IPv4 network of a network of IPv4 addresses mapped into IPv6; any other network unchanged.
pub(crate) fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(net, IpNet::V4)
}
