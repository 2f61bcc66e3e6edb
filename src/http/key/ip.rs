//! Makes keys of IP addresses.
//!
//! The one text that [`client_ip`](super::client_ip) and [`peer_ip`](super::peer_ip) share: `ip:203.0.113.9`, or
//! `ip:2001:db8::/56`. An IPv6 client may use any address of its network, so only a prefix identifies it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Bannable, Key, KeyInfo, MissingKey, counted};

/// The length of the kind and its colon.
const KIND: usize = "ip:".len();

/// Shorter prefixes of IPv6 addresses are of networks that several sites may share.
const LEAST_SITE: u8 = 48;

/// The default prefix length, in bits: a site is usually delegated a /56, which has 2^72 addresses.
pub(super) const DEFAULT_V6_PREFIX: u8 = 56;

/// Makes the key of an address: IPv4 whole, also where IPv6 embeds it; other IPv6 by its prefix of at most 128 bits.
pub(super) fn ip_key(address: IpAddr, v6_prefix: u8) -> Key {
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

/// Returns the key of an address, or of a network as it is written in keys.
pub(super) fn ip_key_of(value: &[u8], v6_prefix: u8) -> Option<Key> {
    let text = str::from_utf8(value).ok()?;
    let key = |address: &str| Some(ip_key(address.parse().ok()?, v6_prefix));
    key(text).or_else(|| key(text.split_once('/')?.0).filter(|key| key.value() == text))
}

/// Returns what is known of keys of addresses.
pub(super) fn ip_info(v6_prefix: u8) -> KeyInfo {
    let bannable = if v6_prefix < LEAST_SITE { Bannable::Shared } else { Bannable::Client };
    let info = KeyInfo::new("ip").missing_key(MissingKey::Share).bannable(bannable).unforgeable();
    KeyInfo { needs_peer: true, ..info }
}

/// Writes an address behind the kind, as `Display` does, in a fraction of the time. Returns the length of both.
fn write_v4(text: &mut [u8; 52], address: Ipv4Addr) -> usize {
    let mut end = KIND;
    for octet in address.octets() {
        for (least, unit) in [(100, 100), (10, 10), (0, 1)] {
            if octet >= least {
                text[end] = b'0' + octet / unit % 10;
                end += 1;
            }
        }
        text[end] = b'.';
        end += 1;
    }
    // Without the last dot.
    end - 1
}

/// Clears the bits of an address after its prefix.
fn network(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_octet_of_an_address_is_written_as_display_writes_it() {
        for octet in 0..=u8::MAX {
            let address = Ipv4Addr::new(octet, octet.wrapping_mul(7), octet.wrapping_add(90), octet / 3);
            assert_eq!(ip_key(address.into(), 56).as_str(), format!("ip:{address}"));
        }
    }

    #[test]
    fn the_longest_network_has_room() {
        let address = Ipv6Addr::from_bits(u128::MAX);
        assert_eq!(ip_key(address.into(), 128).as_str(), format!("ip:{address}/128"));
    }
}
