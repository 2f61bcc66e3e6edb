//! Networks in one form.

use ipnet::{IpNet, Ipv4Net};

/// Addresses are looked up as IPv4 if they are mapped, so networks of mapped ones are kept as IPv4.
pub(crate) fn canonical(net: IpNet) -> IpNet {
    let mapped = match net {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(96)),
    };
    mapped.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok()).map_or(net, IpNet::V4)
}
