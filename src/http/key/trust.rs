//! Which proxies are trusted.
//!
//! A hop in a header is as true as the proxy that wrote it. This module decides, for one address of the chain, whether
//! the hop that it names counts: by networks, or by a number of proxies.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};

use super::canonical;
use crate::core::Error;

/// The characters of an invalid CIDR that an error shows: no valid one is longer.
const LONGEST_SHOWN: usize = 64;

/// The shortest prefixes of networks that may be somebody's own: 10.0.0.0/8, and an allocation of IPv6 addresses.
const LARGEST_V4: u8 = 8;
const LARGEST_V6: u8 = 16;

/// The proxies whose headers count.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trust {
    /// The proxies in these networks, at least one, which share no address and are sorted.
    Nets(Vec<IpNet>),
    /// This many proxies, counted from the peer.
    Hops(usize),
}

impl Trust {
    /// Trusts no proxy.
    pub(super) fn nobody() -> Self {
        Trust::Hops(0)
    }

    /// Trusts the proxies in these networks.
    pub(super) fn nets(nets: impl IntoIterator<Item = IpNet>) -> Self {
        let nets: Vec<IpNet> = nets.into_iter().map(canonical).collect();
        let mut nets = IpNet::aggregate(&nets);
        nets.sort_unstable_by_key(IpNet::network);
        if nets.is_empty() { Self::nobody() } else { Trust::Nets(nets) }
    }

    /// Whether clients anywhere may be among the proxies: a number of them says nothing about who the peer is, and
    /// networks may be so large that they are no operator's own. Many smaller public networks are not noticed.
    pub(super) fn is_of_anyone(&self) -> bool {
        match self {
            Trust::Hops(trusted) => *trusted > 0,
            Trust::Nets(nets) => nets.iter().any(|net| match net {
                IpNet::V4(net) => net.prefix_len() < LARGEST_V4,
                IpNet::V6(net) => net.prefix_len() < LARGEST_V6 && (net.prefix_len() < 3 || is_global(net)),
            }),
        }
    }

    /// Whether all addresses of IPv4 or IPv6 are trusted.
    pub(super) fn is_of_all(&self) -> bool {
        matches!(self, Trust::Nets(nets) if nets.iter().any(|net| net.prefix_len() == 0))
    }

    /// Whether proxies are trusted by their number, and there is one.
    pub(super) fn is_by_number(&self) -> bool {
        matches!(self, Trust::Hops(1..))
    }

    /// Whether the proxy at `address` is trusted, after `passed` others.
    pub(super) fn covers(&self, passed: usize, address: IpAddr) -> bool {
        match self {
            Trust::Hops(trusted) => passed < *trusted,
            Trust::Nets(nets) => {
                let after = nets.partition_point(|net| net.network() <= address);
                nets[..after].last().is_some_and(|net| net.contains(&address))
            }
        }
    }
}

/// Whether a network is in `2000::/3`, from which public addresses are.
fn is_global(net: &Ipv6Net) -> bool {
    net.network().segments()[0] >> 13 == 1
}

/// Parses a CIDR, or an address as the network of that address alone.
pub(super) fn parse_net(text: &str) -> Result<IpNet, Error> {
    let parsed = text.parse::<IpNet>();
    parsed.or_else(|error| text.parse::<IpAddr>().map(IpNet::from).map_err(|_| error)).map_err(|error| {
        let shown: String = text.chars().take(LONGEST_SHOWN).collect();
        Error::invalid(format!(
            "trusted proxy {shown:?} is not a network: write a CIDR such as \"10.0.0.0/8\" or \"2001:db8::/32\", or an \
             address"
        ))
        .with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn row(cidrs: &[&str], address: &str, covered: bool) {
        let trust = Trust::nets(cidrs.iter().map(|cidr| parse_net(cidr).unwrap()));
        assert_eq!(trust.covers(0, address.parse().unwrap()), covered, "{trust:?}");
    }

    #[test]
    fn an_address_is_trusted_if_any_network_holds_it() {
        row(&["10.0.0.0/8"], "10.255.255.255", true);
        row(&["10.0.0.0/8"], "11.0.0.0", false);
        row(&["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8"], "10.200.0.1", true);
        row(&["192.0.2.0/24", "10.0.0.0/8", "172.16.0.0/12"], "172.31.255.255", true);
        row(&["192.0.2.0/24", "10.0.0.0/8", "172.16.0.0/12"], "172.32.0.0", false);
        row(&["10.0.0.7/8"], "10.200.0.1", true);
        row(&["10.0.0.7"], "10.0.0.7", true);
        row(&["10.0.0.7"], "10.0.0.8", false);
        row(&["2001:db8::/32", "10.0.0.0/8"], "2001:db8:ffff::1", true);
        row(&["2001:db8::/32", "10.0.0.0/8"], "2001:db9::1", false);
        row(&[], "10.0.0.1", false);
    }

    #[test]
    fn networks_that_clients_are_in_too_are_those_of_anyone() {
        let is_of_anyone =
            |cidrs: &[&str]| Trust::nets(cidrs.iter().map(|cidr| parse_net(cidr).unwrap())).is_of_anyone();
        for cidr in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "8.0.0.0/7", "2000::/3", "::ffff:0.0.0.0/96"] {
            assert!(is_of_anyone(&["10.0.0.0/8", cidr]), "{cidr}");
        }
        // Two halves are a whole.
        assert!(is_of_anyone(&["0.0.0.0/1", "128.0.0.0/1"]));
        assert!(!is_of_anyone(&[]));
        assert!(!is_of_anyone(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "2001:db8::/32", "::1"]));
        assert!(Trust::Hops(1).is_of_anyone() && !Trust::nobody().is_of_anyone());
    }

    #[test]
    fn networks_may_reach_to_the_last_address() {
        row(&["0.0.0.0/0"], "255.255.255.255", true);
        row(&["255.255.255.255/32"], "255.255.255.255", true);
        row(&["0.0.0.0/0"], "::1", false);
        row(&["::/0"], "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true);
        row(&["::/0"], "10.0.0.1", false);
        row(&["0.0.0.0/0", "::/0"], "::", true);
    }

    #[test]
    fn networks_of_mapped_addresses_are_ipv4() {
        row(&["::ffff:10.0.0.0/104"], "10.9.9.9", true);
        row(&["::ffff:10.0.0.0/104"], "11.0.0.0", false);
        row(&["::ffff:10.0.0.7"], "10.0.0.7", true);
    }
}
