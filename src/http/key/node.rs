//! Parses the address of a hop, in all the forms that proxies write.
//!
//! They are `203.0.113.9`, `203.0.113.9:4711`, `2001:db8::1`, `[2001:db8::1]:4711` and `fe80::1%eth0`. Anything else
//! has no address, rather than a guess.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Parses an address with or without a port, brackets and a zone.
pub(super) fn address(node: &str) -> Option<IpAddr> {
    let (address, port) = match (node.strip_prefix('['), node.split_once(':')) {
        (Some(bracketed), _) => {
            let (host, rest) = bracketed.split_once(']')?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (v6(host)?, port)
        }
        (None, Some((host, port))) if !port.contains(':') => (v4(host)?, Some(port)),
        (None, Some(_)) => (v6(node)?, None),
        (None, None) => (v4(node)?, None),
    };
    port.is_none_or(is_port).then(|| address.to_canonical())
}

fn v4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// Parses an IPv6 address. Its zone (`%eth0`) is dropped: it has a meaning only on the proxy's own host.
fn v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _zone)| address);
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Whether this is a port number, or an obfuscated port: <https://www.rfc-editor.org/rfc/rfc7239#section-6>.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
