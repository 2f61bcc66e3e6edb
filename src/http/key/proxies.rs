//! Trusted proxies, and the hops that they list in headers, the nearest first.
//!
//! Text from the client is to the left of the text that proxies append. So lines are read from their right end, as
//! bytes, and only as far as proxies are trusted: nothing on the left can hide, change or slow down text to the right.
//! No crate reads these headers like that: `forwarded-header-value` rejects a whole line for one malformed hop, and
//! `rfc7239` splits at commas within quotes.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv6Net};

use super::ip::canonical;

/// Shortest prefixes of networks that may belong to one operator: 10.0.0.0/8, and an allocation of IPv6 addresses.
const MAX_V4: i32 = 8;
const MAX_V6: i32 = 16;

/// How many such networks one operator may have.
const MAX_TOGETHER: f64 = 4.0;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trust {
    /// Not empty, sorted and disjoint.
    Nets(Vec<IpNet>),
    /// Counted from the peer.
    Hops(usize),
}

impl Trust {
    pub(super) fn nets(nets: impl IntoIterator<Item = IpNet>) -> Self {
        let nets: Vec<IpNet> = nets.into_iter().map(canonical).collect();
        let mut nets = IpNet::aggregate(&nets);
        nets.sort_unstable_by_key(IpNet::network);
        if nets.is_empty() { Trust::Hops(0) } else { Trust::Nets(nets) }
    }

    /// Returns `true` if clients anywhere may be among the proxies. Many small public networks are not detected.
    pub(super) fn is_of_anyone(&self) -> bool {
        // Public addresses are from `2000::/3`.
        let is_public = |net: &Ipv6Net| net.prefix_len() < 3 || net.network().segments()[0] >> 13 == 1;
        // As a multiple of the largest network that may belong to one operator.
        let size = |net: &IpNet| match net {
            IpNet::V4(net) => 2_f64.powi(MAX_V4 - i32::from(net.prefix_len())),
            IpNet::V6(net) if is_public(net) => 2_f64.powi(MAX_V6 - i32::from(net.prefix_len())),
            IpNet::V6(_) => 0.0,
        };
        match self {
            Trust::Hops(trusted) => *trusted > 0,
            Trust::Nets(nets) => {
                nets.iter().any(|net| size(net) > 1.0) || nets.iter().map(size).sum::<f64>() > MAX_TOGETHER
            }
        }
    }

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

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

const MAX_HOPS: usize = 64;

/// In bytes: enough for all parameters of `Forwarded`.
const MAX_HOP: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ForwardHeader {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

impl ForwardHeader {
    /// `None` is a hop that is malformed, or hides its address.
    pub(super) fn hops<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = Option<IpAddr>> + use<'a> {
        let (name, is_list) = match self {
            Self::XForwardedFor => (&X_FORWARDED_FOR, true),
            Self::Forwarded => (&FORWARDED, true),
            Self::Single(name) => (name, false),
        };
        let lines = headers.get_all(name);
        let is_certain = is_list || lines.iter().nth(1).is_none();
        lines
            .iter()
            .rev()
            .flat_map(|line| self.elements(line.as_bytes()))
            .take(MAX_HOPS)
            .filter(|element| *element != Some(b""))
            .map(move |element| self.address(element.filter(|_| is_certain)?))
    }

    /// Returns the elements of a line, from right to left. `None` is an element that is too long, and ends the
    /// iteration.
    fn elements<'a>(&'a self, line: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
        let mut left = Some(line);
        iter::from_fn(move || {
            let line = left.take()?;
            let skipped = line.len().saturating_sub(MAX_HOP);
            let Some(comma) = self.last_comma(&line[skipped..]) else {
                return Some(Some(line.trim_ascii()).filter(|_| skipped == 0));
            };
            left = Some(&line[..skipped + comma]);
            Some(Some(line[skipped + comma + 1..].trim_ascii()))
        })
    }

    fn last_comma(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::XForwardedFor => text.iter().rposition(|byte| *byte == b','),
            Self::Forwarded => last_comma_outside_quotes(text),
            Self::Single(_) => None,
        }
    }

    fn address(&self, hop: &[u8]) -> Option<IpAddr> {
        let hop = str::from_utf8(hop).ok()?;
        if *self == Self::Forwarded { forwarded_address(hop) } else { address(hop) }
    }
}

fn last_comma_outside_quotes(text: &[u8]) -> Option<usize> {
    // An odd number of backslashes escapes the quote.
    let is_escaped = |at: usize| text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    let mut quoted = false;
    for (at, byte) in text.iter().enumerate().rev() {
        match byte {
            b'"' if !(quoted && is_escaped(at)) => quoted = !quoted,
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Separators of parameters: one semicolon and any white space.
const BETWEEN: [char; 3] = [';', ' ', '\t'];

fn forwarded_address(hop: &str) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = hop.trim_matches(BETWEEN);
    while !rest.is_empty() {
        let (name, value, after) = parameter(rest)?;
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
        rest = after;
    }
    address(found?)
}

fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let (value, rest) = match rest.strip_prefix('"') {
        Some(rest) => quoted(rest)?,
        None => plain(rest)?,
    };
    let after = rest.trim_start_matches(BETWEEN);
    let separated = after.is_empty() || rest.trim_ascii_start().starts_with(';');
    let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\";,".contains(&byte));
    (separated && named).then_some((name, value, after))
}

fn plain(text: &str) -> Option<(&str, &str)> {
    let (value, rest) = text.split_at(text.find(BETWEEN).unwrap_or(text.len()));
    (!value.contains('"')).then_some((value, rest))
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let closing = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closing
    })?;
    Some((&text[..end], &text[end + 1..]))
}

fn address(node: &str) -> Option<IpAddr> {
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

fn v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _zone)| address);
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Matches a port number, or an obfuscated port: <https://www.rfc-editor.org/rfc/rfc7239#section-6>.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_net;
    use super::*;

    fn trust(cidrs: &str) -> Trust {
        Trust::nets(cidrs.split_whitespace().map(|cidr| parse_net(cidr).expect("a network")))
    }

    #[test]
    fn an_address_is_trusted_if_any_network_holds_it() {
        for (cidrs, address, covered) in [
            ("10.0.0.0/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8 10.1.0.0/16 11.0.0.0/8", "10.200.0.1", true),
            ("192.0.2.0/24 10.0.0.0/8 172.16.0.0/12", "172.31.255.255", true),
            ("192.0.2.0/24 10.0.0.0/8 172.16.0.0/12", "172.32.0.0", false),
            ("10.0.0.7/8", "10.200.0.1", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("2001:db8::/32 10.0.0.0/8", "2001:db8:ffff::1", true),
            ("2001:db8::/32 10.0.0.0/8", "2001:db9::1", false),
            ("", "10.0.0.1", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("::/0", "10.0.0.1", false),
            ("::ffff:10.0.0.0/104", "10.9.9.9", true),
            ("::ffff:10.0.0.0/104", "11.0.0.0", false),
        ] {
            assert_eq!(trust(cidrs).covers(0, address.parse().unwrap()), covered, "{address} in {cidrs}");
        }
    }

    #[test]
    fn networks_that_clients_are_in_too_are_those_of_anyone() {
        let halves = ["0.0.0.0/1", "8.0.0.0/7", "2000::/3", "::ffff:0.0.0.0/96", "0.0.0.0/1 128.0.0.0/1"];
        let odd = |net: fn(u16) -> String| (1..128).step_by(2).map(net).collect::<Vec<_>>().join(" ");
        let scattered = [odd(|byte| format!("{byte}.0.0.0/8")), odd(|byte| format!("2{byte:03}::/16"))];
        for cidrs in halves.map(|cidrs| format!("10.0.0.0/8 {cidrs}")).into_iter().chain(scattered) {
            assert!(trust(&cidrs).is_of_anyone(), "{cidrs}");
        }
        let own = "9.0.0.0/8 10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 fc00::/7 2001:db8::/32 ::1";
        assert!(!trust(own).is_of_anyone() && !trust("").is_of_anyone());
        assert!(Trust::Hops(1).is_of_anyone() && !Trust::Hops(0).is_of_anyone());
    }
}
